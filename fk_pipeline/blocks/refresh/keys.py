"""Keys of Delta tables of others: only the pipeline file says that they are unique, and never null.

A refresh tells rows apart by them, so it looks. Let a key have `before` rows at the version of the last refresh, and
`now` rows at this one; the change feed has their difference, and says that a row came before one went, or not:

    before is taken for    0 if a row came first, otherwise 1
    it was                 now - difference                       so only keys with a new row are looked up

Where it was not, or a version between had two rows of a key, the whole is computed; `now > 1` is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.blocks.refresh.changes import IS, MORE, Changes
from fk_pipeline.blocks.refresh.refreshed import Refreshed
from fk_pipeline.blocks.refresh.relations import Snapshot
from fk_pipeline.errors import LeftToSpark, StageError
from fk_pipeline.spec import quote
from fk_pipeline.store.reader import ABSENT
from fk_pipeline.store.rows_in_process import InProcessTable, RowRequest

_MOST_ROWS = 2_000_000
"""Rows of a table whose keys are compared in the driver, at most. A million take 0.1 to 0.3 s; Spark takes 1 to 2 s."""

_SHOWN = 3
"""Keys that an error shows, at most."""

_NUMBER = "_fk_number"


def refuse_shared_keys(spec: Refreshed, snapshot: Snapshot, names: Iterable[str]) -> None:
    """Refuses tables of others in which rows have the same key, or none, if the driver can read their keys.

    Raises:
        StageError: one of the tables has such rows.
    """
    for name in names:
        if not snapshot.relations[name].declared or snapshot.versions[name] == ABSENT:
            continue
        rows = _all_keys(snapshot, name)
        if rows is not None:
            _refuse_shared(spec, snapshot, name, rows)


def why_unclear(spec: Refreshed, snapshot: Snapshot, name: str, changed: Changes) -> str:
    """Returns why changed rows of a table do not tell what changed; empty if they do.

    Raises:
        StageError: rows of a table of others have the same key now, or none.
    """
    to_check, keys = changed.to_check, [*snapshot.relations[name].keys]
    if to_check is None:
        return ""
    to_check = _one_zero(to_check)
    whole = to_check.filter(pc.invert(_null(to_check, keys)))
    _refuse(
        spec, snapshot, name, to_check.filter(pc.and_(_null(to_check, keys), to_check[IS])).select(keys), "a null in it"
    )
    if len(whole):
        rows = _some_keys(snapshot, name, whole.select(keys))
        if rows is None:  # a check of the result looks at all keys
            return ""
        present = _refuse_shared(spec, snapshot, name, rows.cast(whole.select(keys).schema)).select(keys)
        present = whole.join(present, keys, join_type="left semi")
        both = len(present.filter(present[IS]))
        if both < len(present) or both < len(whole.filter(whole[IS])):
            return f"rows of {name} shared a key in a version between"
    if len(whole) < len(to_check) or pc.any(pc.not_equal(to_check[MORE], 0)).as_py():
        return f"rows of {name} shared a key in a version between"
    return ""


def _null(rows: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    """Returns, per row, whether a part of its key is null."""
    return reduce(pc.or_, (pc.is_null(rows[key]) for key in keys))


def _one_zero(rows: pa.Table) -> pa.Table:
    """Returns rows with 0.0 in place of -0.0, which Spark takes for equal and Arrow does not."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            rows = rows.set_column(place, field, pc.add(rows[field.name], pa.scalar(0, field.type)))
    return rows


def _some_keys(snapshot: Snapshot, name: str, keys: pa.Table) -> pa.Table | None:
    """Returns the keys of the rows of a table that have some keys, maybe more; None if that would take long."""
    if len(keys) > snapshot.reader.limits.in_driver:
        return _all_keys(snapshot, name)
    own, relation = {key: key for key in keys.column_names}, snapshot.relations[name]
    dtypes = dict(relation.table.columns)
    held = snapshot.reader.frames.held(keys, [(key, dtypes[key]) for key in own])
    rows = snapshot.reader.exactly(name, held, own)
    if rows.local is not None and relation.stored:
        return rows.local.select([*own])
    return relation.view(rows.frame).select(*map(quote, own)).toArrow()


def _all_keys(snapshot: Snapshot, name: str) -> pa.Table | None:
    """Returns the keys of all rows of a table, read in the driver; None if it should not, or cannot."""
    stored, place, relation = snapshot.reader.warehouse, snapshot.places[name], snapshot.relations[name]
    if not relation.stored or not stored.reads_in_the_driver or "://" in place:
        return None
    table = stored.logs.table(place)
    if table is None or table.version() != snapshot.versions[name]:
        return None
    try:
        local = InProcessTable.of(stored.logs, place, stored.sizes)
        return None if local is None or local.rows > _MOST_ROWS else local.read(RowRequest(relation.keys))
    except LeftToSpark:
        return None


def _refuse_shared(spec: Refreshed, snapshot: Snapshot, name: str, rows: pa.Table) -> pa.Table:
    """Refuses keys that two rows have, or that have a null; returns each key once."""
    rows, keys = _one_zero(rows), rows.column_names
    if any(rows[key].null_count for key in keys):
        _refuse(spec, snapshot, name, rows.filter(_null(rows, keys)), "a null in it")
    counted = rows.group_by(keys).aggregate([([], "count_all")])
    if len(counted) < len(rows):
        counted = counted.rename_columns(
            [_NUMBER if column == "count_all" else column for column in counted.column_names]
        )
        shared = counted.filter(pc.greater(counted[_NUMBER], 1))
        _refuse(spec, snapshot, name, shared.select(keys), "more than one row")
    return counted


def _refuse(spec: Refreshed, snapshot: Snapshot, name: str, keys: pa.Table, has: str) -> None:
    """Refuses a table with some keys that do not identify a row, if there are any; `has` says what they have."""
    if not len(keys):
        return
    side, declared = spec.inputs[name], ", ".join(keys.column_names)
    shown = [
        ", ".join(f"{column}={'null' if value is None else value}" for column, value in row.items())
        for row in keys.slice(0, _SHOWN).to_pylist()
    ]
    secret = any(map(side.is_sensitive, keys.column_names))
    examples = "" if secret else f": {'; '.join(shown)}{'; ...' if len(keys) > _SHOWN else ''}"
    raise StageError(
        f"the key of {name} ({declared}) does not identify its rows: {len(keys):,} with {has}{examples}",
        where=f"{snapshot.places[name]}, version {snapshot.versions[name]}",
        why="a refresh tells the rows of an input apart by its key, which is unique and never null",
        fix=f"correct the table and run again; or name at inputs.{name}.key in {spec.file} columns that identify a row",
    )
