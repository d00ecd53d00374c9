"""The kinds of joins by name. A kind is loaded when a pipeline file asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from fk_pipeline.contract import Kind, loaded

KINDS = {"foreign_key": "fk_pipeline.kinds.foreign_key.kind:FOREIGN_KEY"}
"""Per value of `kind` in the pipeline file, the reference to its `Kind`."""

FIRST = "foreign_key"
"""The kind of tables whose ledger names no kind: they were created when this was the only one."""


def kind_named(name: str) -> Kind:
    """Returns the kind that a pipeline file names; the model of the file allows only the names in `KINDS`."""
    kind = loaded(KINDS[name])
    assert isinstance(kind, Kind)
    return kind


def kinds() -> Iterator[Kind]:
    """Yields all kinds."""
    return map(kind_named, KINDS)
