"""Names and schemas of the tables of a windowed join.

Source columns keep their names in the changelogs and in both states. In messages and result the components of the left
key are `_fk_pk_<column>`, those of the right key `_fk_rk_<column>`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window.kind import BUCKET, TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import Column, quote
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import MERGED, Table, skippable, typed_columns, version_columns

STATE_OF = {Side.LEFT: WindowStage.SUBSCRIPTION_STORE, Side.RIGHT: WindowStage.RIGHT_TABLE}
LOG_OF = {Side.LEFT: "left_changelog", Side.RIGHT: "right_changelog"}
TIMES_OF = {Side.LEFT: "left_times", Side.RIGHT: "right_times"}
"""Per side its state, its changelog and the index of its state."""

HASH_OF = {Side.LEFT: s.LEFT_HASH, Side.RIGHT: s.RIGHT_HASH}
"""Per side, the column of messages and result with the hash of its row."""


def other(side: Side) -> Side:
    """Returns the other side."""
    return Side.RIGHT if side == Side.LEFT else Side.LEFT


def source(spec: WindowSpec, side: Side) -> Side:
    """Returns the side whose changelog and state have the rows of a side."""
    return Side.LEFT if spec.single_store else side


def sources(spec: WindowSpec) -> tuple[Side, ...]:
    """Returns the sides that have a changelog and a state of their own."""
    return tuple(dict.fromkeys(source(spec, side) for side in SIDES))


def part(side: Side, name: str) -> str:
    """Returns the name of a component of the key of a side in messages and result."""
    return f"_fk_pk_{name}" if side == Side.LEFT else f"_fk_rk_{name}"


def part_columns(spec: WindowSpec, side: Side) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of each component of the key of a side in messages and result."""
    return tuple((part(side, c.name), c.type) for c in spec.side(side).key_columns)


def parts(spec: WindowSpec, *sides: Side) -> list[str]:
    """Returns the names of `part_columns` of some sides."""
    return [name for side in sides for name, _ in part_columns(spec, side)]


def log_stage(spec: WindowSpec, side: Side) -> str:
    """Returns the stage that writes the changelog from which the state of a side comes; the ledger has its horizon."""
    return spec.definition.input(source(spec, side)).stage


def own_key(spec: WindowSpec, side: Side) -> list[str]:
    """SQL: the key columns of a changelog or a state under the names that messages and result have."""
    return [f"{c.quoted} AS {quote(part(side, c.name))}" for c in spec.side(side).key_columns]


def no_row(spec: WindowSpec, side: Side) -> list[str]:
    """SQL: the key columns and the hash of a side, null, as messages and result have them without a row of it."""
    columns = (*part_columns(spec, side), (HASH_OF[side], "BINARY"))
    return [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns]


def alone_on(spec: WindowSpec) -> tuple[Side, ...]:
    """Returns the sides whose rows may stand alone in the result."""
    return () if spec.inner else SIDES if spec.outer else (Side.LEFT,)


def payload_columns(spec: WindowSpec, side: Side) -> tuple[Column, ...]:
    """Returns the selected columns of a side that are not part of its key: a state has their values."""
    keys = {c.name for c in spec.side(side).key_columns}
    return tuple(c for c in spec.selected[side] if c.name not in keys)


def sensitive_names(spec: WindowSpec, *sides: Side) -> frozenset[str]:
    """Returns the names of the table columns, and of the fields of their structs, that have sensitive values.

    Args:
        spec: the pipeline.
        sides: the sides whose columns the tables have under the names of the source.
    """
    found = [
        part(side, c.name) for side in SIDES for c in spec.side(side).key_columns if c.name in spec.side(side).sensitive
    ]
    for side in map(spec.side, SIDES):
        reads = [{path[0] for path in parse_expression(text).reads} for text in side.on]
        names = zip(on_columns(spec), reads, strict=True)
        found += [name for name, read in names if any(map(side.is_sensitive, read))]
        order = side.sequence_by
        if order is not None and any(side.is_sensitive(path[0]) for path in parse_expression(order).reads):
            found.append("value")  # the field of a sequence that `sequence_by` gives
    times = [TIME, BUCKET] if spec.is_secret_time() else []
    return frozenset([*found, *times, *(name for side in sides for name in spec.side(side).sensitive)])


def keys_of(spec: WindowSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    sides = [side for side in SIDES if table in (STATE_OF[side], LOG_OF[side])]
    keys: tuple[tuple[str, str], ...] = ()
    nullable: tuple[tuple[str, str], ...] = ()
    for side in SIDES:
        if table == STATE_OF[side]:
            keys = typed_columns(spec.side(side).key_columns)
    if table == WindowStage.RESOLVED_JOIN:
        left, right = (part_columns(spec, side) for side in SIDES)
        keys = (*left, *right)
        nullable = () if spec.inner else keys if spec.outer else right
    return Table(
        table,
        keys,
        keys=tuple(name for name, _ in keys),
        sensitive=sensitive_names(spec, *sides),
        nullable_keys=frozenset(name for name, _ in nullable),
    )


def shown_keys(spec: WindowSpec) -> list[str]:
    """Returns, per key column of the result, the name of the column of the source that it is."""
    left = [column.name for column in spec.left.key_columns]
    return [*left, *(f"right.{c.name}" if c.name in left else c.name for c in spec.right.key_columns)]


def state(spec: WindowSpec, side: Side, sequence: str, on_types: Sequence[str], time: str) -> Table:
    """One row per key ever seen: what it matches by, its version and its selected columns; no hash: it is gone."""
    keys = keys_of(spec, STATE_OF[side])
    matched_by = tuple(zip(on_columns(spec), on_types, strict=True))
    return Table(
        STATE_OF[side],
        (
            *keys.columns,
            *matched_by,
            (TIME, time),
            *version_columns(sequence),
            *typed_columns(payload_columns(spec, side)),
        ),
        skip_by=(s.APPLIED_IN, s.OWNER, TIME, *skippable(keys.columns)),
        keys=keys.keys,
        properties=MERGED,
    )


def times(spec: WindowSpec, side: Side, on_types: Sequence[str]) -> Table:
    """Index of a large state: the values of `on` and the span of time of every row that it ever had, with its key."""
    found = (*zip(on_columns(spec), on_types, strict=True), (BUCKET, "BIGINT"))
    return Table(TIMES_OF[side], (*found, *typed_columns(spec.side(side).key_columns)), skip_by=skippable(found))


def responses(spec: WindowSpec) -> Table:
    """One row per batch and row that it changed, and per pair of such a row with a row of the other side. No payload.

    A pair has both keys and both hashes and the cause `pair`; any other message those of the side that changed, which
    is its cause.
    """
    return Table(
        WindowStage.RESPONSES,
        (
            (s.BATCH, "INT"),
            *part_columns(spec, Side.LEFT),
            *part_columns(spec, Side.RIGHT),
            (s.CAUSE, "STRING"),
            (s.LEFT_HASH, "BINARY"),
            (s.RIGHT_HASH, "BINARY"),
        ),
        skip_by=(s.BATCH,),
    )


def resolved_join(spec: WindowSpec, output_types: Sequence[tuple[str, str]]) -> Table:
    """One row per pair, and per row that stands alone: the selected columns, both keys and hashes, its last change."""
    key = keys_of(spec, WindowStage.RESOLVED_JOIN)
    return Table(
        WindowStage.RESOLVED_JOIN,
        (
            *key.columns,
            (s.LEFT_HASH, "BINARY"),
            (s.RIGHT_HASH, "BINARY"),
            (s.BATCH, "INT"),
            (s.CHANGED_AT, "TIMESTAMP"),
            *output_types,
        ),
        skip_by=(s.BATCH, *skippable(key.columns)),
        keys=key.keys,
        nullable_keys=key.nullable_keys,
        properties={**MERGED, s.CHANGE_FEED: "true"},
    )


_MEANING = {
    **s.MEANING,
    s.HASH: "of the selected columns, the values of `on` and the time; null: the row is gone",
    s.APPLIED_IN: "the batch whose processing last changed the content; the responses are due there",
    TIME: "when the row happened",
    BUCKET: "the number of the span of time, as long as a window, in which the row happened",
    s.CAUSE: "`left` or `right`: the row of this side changed; `pair`: two rows match, and one of them changed",
    s.LEFT_HASH: "of the left row; null: deleted, or there is none",
    s.RIGHT_HASH: "of the right row; null: deleted, or there is none",
    s.SIDE: "`left` or `right`: the side that the line came in on; `join`: a pair of rows",
    s.LINE: "the line, from 1; null for a pair",
    s.RAW: 'the line as it is, or as it was corrected; for a pair `{"left", "right"}` as JSON',
}

_COMPONENTS = {
    "_fk_pk_": "component of the key of the left row; null without one",
    "_fk_rk_": "component of the key of the right row; null without one",
    "_fk_on_": "a value of `on`; null matches nothing",
}


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    if (table, column) == (WindowStage.RESOLVED_JOIN, s.BATCH):
        return "the batch of the last change; after a range run, one of its batches"
    if table in LOG_OF.values() and column == s.HASH:
        return "of the whole row; null for a tombstone"
    component = next((told for prefix, told in _COMPONENTS.items() if column.startswith(prefix)), None)
    return _MEANING.get(column, component)


def lineage(spec: WindowSpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come.

    The stages that read landing files have none.
    """
    stages = {side: STATE_OF[source(spec, side)] for side in SIDES}
    found: dict[str, list[tuple[str, str]]] = {}
    if stage == WindowStage.SUBSCRIPTION_STORE:
        log = WindowStage.LEFT_CHANGELOG.value
        kept = [*spec.left.key_columns, *payload_columns(spec, Side.LEFT)]
        found = {column.name: [(log, column.name)] for column in kept}
        for name, sql in (*zip(on_columns(spec), spec.left.on, strict=True), (TIME, spec.left.time)):
            read = [spec.left.column(path[0]) for path in parse_expression(sql).reads]
            found[name] = [(log, column.name) for column in read if column is not None]
    elif stage in (WindowStage.RESPONSES, WindowStage.RESOLVED_JOIN):
        for side, where in stages.items():
            found |= {part(side, c.name): [(where, c.name)] for c in spec.side(side).key_columns}
            found[HASH_OF[side]] = [(where, s.HASH)]
        for output in spec.outputs if stage == WindowStage.RESOLVED_JOIN else ():
            reads = dict.fromkeys(spec.resolve(read) for read in parse_expression(output.sql).reads)
            found[output.name] = [(stages[side], column.name) for side, column in reads]
    return found
