"""The kinds of joins by name. A kind is loaded when a pipeline file asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from fk_pipeline.contract import Kind, loaded

KINDS = {
    "foreign_key": "fk_pipeline.kinds.foreign_key.kind:FOREIGN_KEY",
    "window": "fk_pipeline.kinds.window.kind:WINDOW",
    "aggregate": "fk_pipeline.kinds.aggregate.kind:AGGREGATE",
    "table": "fk_pipeline.kinds.table.kind:TABLE",
    "query": "fk_pipeline.kinds.query.kind:QUERY",
}
"""Per value of `kind` in the pipeline file, the reference to its `Kind`."""

FIRST = "foreign_key"
"""The kind of tables whose ledger names no kind: they were created when this was the only one."""

OF_INLINE = "table"
"""The kind of the pipeline that an input is which another pipeline file gives inline."""


def kind_named(name: str) -> Kind:
    """Returns the kind that a pipeline file names; the model of the file allows only the names in `KINDS`."""
    kind = loaded(KINDS[name])
    assert isinstance(kind, Kind)
    return kind


def kinds() -> Iterator[Kind]:
    """Yields all kinds."""
    return map(kind_named, KINDS)
