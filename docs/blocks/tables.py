"""Columns of every table, of the pipeline and of its ledger: from `fk_pipeline.store`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blocks.markdown import code, items
from blocks.sample import SPEC

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.kinds.foreign_key import tables
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.formats import FORMATS
from fk_pipeline.store import schemas
from fk_pipeline.store.ledger import entries

SOURCE = {"l": "left.key", "lv": "left.schema", "r": "right.key", "rv": "right.schema", "out": "select"}
"""The columns of the sample that stand for those of a source, or of the result."""

COMPONENTS = {
    tables.pk("l"): tables.pk("*"),
    tables.fk("r"): tables.fk("*"),
    tables.previous_fk("r"): tables.previous_fk("*"),
}
"""The columns of the sample that have one for each component of a key, as they are shown."""

PLAIN = ("the batch", "the landing file", "component of the left row's key")
"""Meanings that the name of a column says."""


def blocks() -> dict[str, str]:
    """The columns of each table, and the order that each format knows, by the names of their blocks.

    A table of the ledger whose columns need no meaning has none.
    """
    order = "STRUCT<...>"
    every = [
        tables.left_changelog(SPEC, order, has_holes=True),
        tables.right_table(SPEC, order),
        tables.subscription_store(SPEC, order),
        tables.responses(SPEC),
        tables.resolved_join(SPEC, (("out", "STRING"),)),
        schemas.quarantine_table(),
    ]
    found = _told_once({one.name: _of_table(one) for one in every})
    ledger = {f"ledger.{name}": of for name, of in entries.COLUMNS.items() if any(told for _, _, told in of)}
    found |= _told_once({name: [[code(column), told] for column, _, told in of] for name, of in ledger.items()})
    return {**{f"columns.{name}": text for name, text in found.items()}, "sequences": _sequences()}


def _told_once(columns: Mapping[str, Sequence[list[str]]]) -> dict[str, str]:
    """Each list of columns with their meanings; of those that need none, or have one in an earlier list, the names."""
    found, told = {}, list[list[str]]()
    for name, rows in columns.items():
        plain = [shown for shown, meaning in rows if not meaning]
        again = [row[0] for row in rows if row[1] and row in told]
        new = [row for row in rows if row[1] and row not in told]
        also = "Also" if new or again else "Columns"
        names = [f"{word}: {', '.join(of)}." for word, of in (("As above", again), (also, plain)) if of]
        parts = [items(f"{shown}: {meaning}" for shown, meaning in new)] if new else []
        found[name] = "\n\n".join([*parts, " ".join(names)] if names else parts)
        told += new
    return found


def _of_table(one: schemas.Table) -> list[list[str]]:
    rows = []
    for name, _ in one.columns:
        if name in SOURCE:
            rows.append(_of_source(name, one.name))
            continue
        meaning = tables.meaning(name, one.name)
        if meaning is None:
            raise LookupError(f"{one.name}.{name} has no meaning in fk_pipeline/kinds/foreign_key/tables.py")
        note = "; only with [holes](debezium.md#values-that-were-not-sent)"
        meaning = "" if meaning in PLAIN else meaning + (note if name == schemas.HOLES else "")
        rows.append([code(COMPONENTS.get(name, name)), meaning])
    return rows


def _of_source(name: str, of: str) -> list[str]:
    key = SOURCE[name]
    if name in ("l", "r", "out"):
        truncate = "null in the row of a truncate" if of.endswith("changelog") else ""
        return [f"the columns of {code(key)}", truncate]
    return [f"the other columns of {code(key)}", "null in a tombstone"]


def _sequences() -> str:
    formats: dict[str, list[str]] = {}
    for name in FORMATS:
        side = SideSpec.model_validate({"path": "landing", "format": name, "schema": "k STRING", "key": "k"})
        formats.setdefault(format_of(side).sequence_type.removeprefix("STRUCT"), []).append(code(name))
    lines = [f"{', '.join(names)}: {code(order)}" for order, names in formats.items()]
    return items([*lines, "any, with `sequence_by`: `<value: ...>`"])
