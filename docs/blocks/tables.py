"""Columns of every table, of the pipeline and of its ledger: from `fk_pipeline.store`."""

from __future__ import annotations

import pyarrow as pa
from blocks.markdown import code, table
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
    tables.pk("l"): (tables.pk("<left key column>"), "as the left key"),
    tables.fk("r"): (tables.fk("<right key column>"), "as the right key"),
    tables.previous_fk("r"): (tables.previous_fk("<right key column>"), "as the right key"),
}
"""The columns of the sample that have one for each component of a key: as they are shown, and their type."""


def blocks() -> dict[str, str]:
    """The columns of each table, and the order that each format knows, by the names of their blocks."""
    order = "STRUCT<...>"
    every = [
        tables.left_changelog(SPEC, order, has_holes=True),
        tables.right_changelog(SPEC, order, has_holes=True),
        tables.right_table(SPEC, order),
        tables.subscription_store(SPEC, order),
        tables.subscribers(SPEC),
        tables.responses(SPEC),
        tables.verdicts(SPEC),
        tables.resolved_join(SPEC, (("out", "STRING"),)),
        schemas.quarantine_table(),
    ]
    found = {f"columns: {one.name}": _of_table(one) for one in every}
    found |= {f"columns: ledger {name}": _of_ledger(columns) for name, columns in entries.COLUMNS.items()}
    return {**found, "columns: every ledger table": _of_ledger(entries.EVERY), "sequences": _sequences()}


def _of_table(one: schemas.Table) -> str:
    rows = []
    for name, kind in one.columns:
        if name in SOURCE:
            rows.append(_of_source(name, one.name))
            continue
        meaning = tables.meaning(name, one.name)
        if meaning is None:
            raise LookupError(f"{one.name}.{name} has no meaning in fk_pipeline/kinds/foreign_key/tables.py")
        note = "; only of formats with [holes](debezium.md#values-that-were-not-sent)"
        shown, typed = COMPONENTS.get(name, (name, code(kind)))
        rows.append([code(shown), typed, meaning + (note if name in (schemas.HOLES, schemas.OLD_KEY) else "")])
    return table(["column", "type", "meaning"], rows)


def _of_source(name: str, of: str) -> list[str]:
    key = SOURCE[name]
    if name == "out":
        return ["the columns of `select`", "as computed", "the result"]
    if name in ("l", "r"):
        truncate = "; null in the row of a truncate" if of.endswith("changelog") else ""
        return [f"the columns of {code(key)}", "as declared", f"the key{truncate}"]
    return [f"the other columns of {code(key)}", "as declared", "the row; null in a tombstone"]


def _of_ledger(columns: entries.Columns) -> str:
    return table(
        ["column", "type", "meaning"],
        [[code(name), code(_sql(kind)), told] for name, kind, told in columns],
    )


_SQL = {
    pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN",
}  # fmt: skip


def _sql(kind: pa.DataType) -> str:
    """The type as Spark shows it."""
    if pa.types.is_map(kind):
        return f"MAP<{_sql(kind.key_type)}, {_sql(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_sql(kind.value_type)}>"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) else _SQL[kind]


def _sequences() -> str:
    rows = []
    for name in FORMATS:
        side = SideSpec.model_validate({"path": "landing", "format": name, "schema": "k STRING", "key": "k"})
        rows.append([code(name), code(format_of(side).sequence_type.removeprefix("STRUCT"))])
    rows.append(["any, with `sequence_by`", "`<value: ...>`"])
    return table(["format", "sequence"], rows)
