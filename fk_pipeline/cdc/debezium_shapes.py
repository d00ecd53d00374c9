"""The shapes of Debezium's change events, as SQL over parsed lines (`docs/reference/debezium.md#shapes`).

A line is an exported record, an envelope or a flattened row, each with or without `{"schema", "payload"}`. The columns
`_record`, `_flat` and `_envelope` have what was read of each; the row of an event is found by the path of its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fk_pipeline.cdc.json_lines import WRAPPED, parsed, value_of
from fk_pipeline.cdc.records import struct_of_texts
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.sql import text

_ENVELOPE_FIELDS = ("before", "after", "op", "status", "source")
_PLACES = {
    "_record.value.payload": ("value", "payload"),
    "_record.value": ("value",),
    "_record.payload": ("payload",),
    "_record": (),
}
"""Per place where a shape may have the event, the names on the path to it."""

SHAPED = tuple(
    ".".join([*path, name])
    for path in sorted(_PLACES.values(), key=len)
    for name in ("value", "payload", "before", "after", "source")
)
"""The paths at which a shape has an object or null."""

ENVELOPE = "COALESCE({})".format(
    ", ".join(
        f"IF({place}.op IS NOT NULL OR {place}.status IS NOT NULL, "
        f"STRUCT({', '.join(f'{place}.{name} AS {name}' for name in _ENVELOPE_FIELDS)}), NULL)"
        for place in _PLACES
    )
)
"""SQL of the envelope of a line, wherever its shape puts it; null for a tombstone line."""

_DELETES = "LOWER(_envelope.op) = 'd'"
"""SQL (BOOLEAN): an envelope is of a delete, and has its row in `before`."""

_POSITIONS = ("sequence", "lsn", "file", "pos", "commit_scn", "scn", "commit_lsn")
"""The fields of `source` from which the order is read."""

COMMIT_TIMES = ("ts_us", "ts_ns", "ts_ms")
"""The fields of `source` with the time of the commit, the most exact one first; a version of Debezium may lack some."""

_SOURCE = (*_POSITIONS, *COMMIT_TIMES, "table", "schema", "db")

_FLAT_FIELDS = ("__op", "__deleted", *(f"__source_{name}" for name in _SOURCE))


def schema_of(side: SideSpec) -> str:
    """DDL of the fields of all shapes together; a line fills those of its own shape.

    Of a flattened row they only show that it is flattened.
    """
    image, source = struct_of_texts(side.columns), ", ".join(f"{name}: STRING" for name in _SOURCE)
    envelope = (
        f"before: {image}, after: {image}, op: STRING, status: STRING, source: STRUCT<{source}>, "
        "__op: STRING, __deleted: STRING"
    )
    return (
        f"topic: STRING, key: STRING, headers: STRING, value: STRUCT<{envelope}, payload: STRUCT<{envelope}>>, "
        f"{envelope}, payload: STRUCT<{envelope}>"
    )


def flat_row(side: SideSpec) -> str:
    """SQL (STRUCT of texts): a flattened row; null for other shapes.

    It is parsed a second time, because columns of the row may have names of envelope fields.
    """
    declared = {c.name.lower() for c in side.columns}
    fields = [f"{c.quoted}: STRING" for c in side.columns]
    fields += [f"{name}: STRING" for name in _FLAT_FIELDS if name not in declared]

    def row_at(path: Sequence[str]) -> str:
        schema = ", ".join([*fields, *(["_fk_end: STRING"] if path else [])])  # the outermost has it by itself
        for name in reversed(path):
            schema = f"{name}: STRUCT<{schema}>"
        return ".".join([value_of(parsed(WRAPPED, schema)), *path])

    return _of_flat(row_at)


def image(side: SideSpec) -> str:
    """SQL (STRUCT of texts): the row of a line's event, as its source wrote it."""
    flat = ", ".join(f"_flat.{c.quoted} AS {c.quoted}" for c in side.columns)
    return f"IF(_flat IS NOT NULL, STRUCT({flat}), IF({_DELETES}, _envelope.before, _envelope.after))"


def source() -> str:
    """SQL (STRUCT of texts): what a line says of the source of its event, named as in an envelope."""
    flat, envelope = (
        ", ".join(f"{of}{name} AS {name}" for name in _SOURCE) for of in ("_flat.__source_", "_envelope.source.")
    )
    return f"IF(_flat IS NULL, STRUCT({envelope}), STRUCT({flat}))"


def _of_flat(read: Callable[[Sequence[str]], str]) -> str:
    """SQL of something that is read of a flattened row, given the path to it."""
    of = " ".join(
        f"WHEN {place}.__op IS NOT NULL OR {place}.__deleted IS NOT NULL THEN {read(path)}"
        for place, path in _PLACES.items()
    )
    return f"CASE {of} END"


def path_of_image(image: str) -> str:
    """SQL (STRING): the path to `before` or `after` of the envelope of a line."""
    of = " ".join(
        f"WHEN {place}.op IS NOT NULL OR {place}.status IS NOT NULL THEN {text('.'.join(['$', *path, image]))}"
        for place, path in _PLACES.items()
    )
    return f"CASE {of} END"


def path_of_row() -> str:
    """SQL (STRING): the path to the row of a line's event."""
    flat = _of_flat(lambda path: text(".".join(["$", *path])))
    return (
        f"CASE WHEN _flat IS NOT NULL THEN {flat} "
        f"WHEN {_DELETES} THEN {path_of_image('before')} ELSE {path_of_image('after')} END"
    )
