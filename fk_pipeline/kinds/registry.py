"""The kinds of joins by name. A kind is loaded when a pipeline file asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from fk_pipeline.contract import Kind, loaded

KINDS = {"foreign_key": "fk_pipeline.kinds.foreign_key.kind:FOREIGN_KEY"}
"""By `kind` in the pipeline file, the reference to its `Kind`."""

FIRST = "foreign_key"
"""The kind of tables that were made when there was no other, and their ledger did not name it."""


def kind_named(name: str) -> Kind:
    """The kind that a pipeline file names; the model of the file allows no other names than those of `KINDS`."""
    kind = loaded(KINDS[name])
    assert isinstance(kind, Kind)
    return kind


def kinds() -> Iterator[Kind]:
    """All kinds."""
    return map(kind_named, KINDS)
