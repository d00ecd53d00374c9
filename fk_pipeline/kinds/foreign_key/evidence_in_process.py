"""The evidence of a story, read in this process; what is not certainly equal to that of Spark is left to Spark.

Columns of the pipeline file are taken as they are, no expression is evaluated. A content hash is computed, after the
hash of the whole row has come out as the stored one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.blocks.changelog import content_columns
from fk_pipeline.blocks.hashing_in_process import row_digests
from fk_pipeline.blocks.keyed_in_process import (
    VERSION_COLUMNS,
    Tables,
    among,
    check_sides,
    in_source_order,
    json_of,
    of_keys,
    tuples,
    typed_key,
    under,
    whole_rows,
)
from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.conditions import AllTests, AnyTest, NotTest, NullTest, RowTest
from fk_pipeline.conditions_of_sql import is_value
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.identity import OF_PAIRS, SIDES, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.evidence import MOST_QUARANTINED, RECORD, held, naming_patterns, versions_of
from fk_pipeline.kinds.foreign_key.spec import BY_BATCH, VALIDITY, ForeignKeySpec
from fk_pipeline.kinds.foreign_key.story import Version
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.rows_in_process import Relation, RowRequest

MOST_REFERRING = 10_000
"""The largest number of left rows that refer to a right row whose story is made in this process."""

_KNOWN_LETTERS = "\u024f"
"""The last of the characters that are letters, digits or neither for Python and every Java alike."""


class LeftHere:
    """The stored rows about a left key (`LeftEvidence`).

    Raises:
        LeftToSpark: only Spark can read them, or compute what the pipeline file says.
        UsageError: a text is not a value of the type of its column.
    """

    def __init__(self, table: Tables, spec: ForeignKeySpec, key: Mapping[str, str]) -> None:
        _check(spec)
        self._table, self._spec = cache(table), spec
        tests, self.key = typed_key(key, spec.left, self._table(k.LEFT_CHANGELOG).schema)
        self._in_state = under(tests, k.pk)
        left, lefts = _log(self._table(k.LEFT_CHANGELOG), spec, Side.LEFT, AllTests(tuple(tests)))
        has_key = among({c.name: left[k.fk(c.name)] for c in spec.right.key_columns})
        _, right = _log(self._table(k.RIGHT_CHANGELOG), spec, Side.RIGHT, has_key)
        keys = tuples(lefts, k.fk_names(spec))
        self.logs = {Side.LEFT: lefts, Side.RIGHT: of_keys(right, keys, spec.right)}

    def of_key(self, table: str) -> list[JsonRow]:
        """Returns the rows of a table that have the key in its `_fk_pk_*` columns."""
        return whole_rows(self._table(table), self._in_state)

    def quarantined(self, refers_to: JsonRow | None) -> list[JsonRow]:
        """Returns the records of the quarantine that may concern the key."""
        return _quarantined(self._table(s.QUARANTINE), {Side.LEFT: self.key, Side.RIGHT: refers_to})

    def expected(self) -> JsonRow | None:
        """Returns the row of the join."""
        spec = self._spec
        left = next(_living(self.logs[Side.LEFT], spec, Side.LEFT), None)
        if left is None:
            return None
        rights = versions_of(self.logs[Side.RIGHT], spec, Side.RIGHT)
        if any(isinstance(version.at, str) and not version.at[0].isdigit() for version in (left, *rights)):
            raise LeftToSpark("times before the year 0 or after 9999 are ordered by Spark")
        if spec.as_of is None:
            right = next((version for version in rights if version.current and version.key == left.refers_to), None)
        else:
            right = held(rights, left.refers_to, left.at, spec)
        right = None if right is None or right.deleted or left.refers_to is None else right
        if right is None:
            return None if spec.inner else _joined(left, None, spec)
        return _joined(left, right, spec, _end_of(right, rights, spec) if spec.selects_end else None)


class RightHere:
    """The stored rows about a right key of an outer join (`RightEvidence`).

    Raises:
        LeftToSpark: as `LeftHere`.
        UsageError: as `LeftHere`.
    """

    def __init__(self, table: Tables, spec: ForeignKeySpec, key: Mapping[str, str]) -> None:
        _check(spec)
        self._table, self._spec = cache(table), spec
        tests, self.key = typed_key(key, spec.right, self._table(k.RIGHT_CHANGELOG).schema)
        _, self.log = _log(self._table(k.RIGHT_CHANGELOG), spec, Side.RIGHT, AllTests(tuple(tests)))
        in_state = under(tests, k.fk)
        pks = k.pk_names(spec)
        referring = self._table(k.SUBSCRIPTION_STORE).read(RowRequest(pks, [*in_state, NotTest(NullTest(s.HASH))]))
        matched = [NotTest(NullTest(pks[0])), NotTest(NullTest(s.RIGHT_HASH))]
        joined = self._table(k.RESOLVED_JOIN).read(
            RowRequest(pks, [*in_state, *matched], [(name, False) for name in pks])
        )
        self.referring, self.joined = len(referring), len(joined)
        self.example = next(iter(json_of(joined.slice(0, 1))), None)
        unmatched = [*in_state, NullTest(pks[0])]
        self.unmatched = next(iter(whole_rows(self._table(k.RESOLVED_JOIN), unmatched)), None)
        if self.referring + self.joined > MOST_REFERRING:
            raise LeftToSpark(f"{max(self.referring, self.joined):,} left rows refer to it")
        self._lefts = pa.concat_tables([referring, joined], promote_options="default")

    def quarantined(self) -> list[JsonRow]:
        """Returns the records of the quarantine that may concern the key."""
        return _quarantined(self._table(s.QUARANTINE), {Side.RIGHT: self.key})

    def expected(self) -> JsonRow | None:
        """Returns the row of the join without a left row."""
        right = next(_living(self.log, self._spec, Side.RIGHT), None)
        if right is None:
            return None
        left, pks = self._spec.left, self._lefts.column_names
        has_key = among({c.name: self._lefts[k.pk(c.name)] for c in left.key_columns})
        _, rows = _log(self._table(k.LEFT_CHANGELOG), self._spec, Side.LEFT, has_key)
        lefts = _living(of_keys(rows, tuples(json_of(self._lefts), pks), left), self._spec, Side.LEFT)
        return None if any(version.refers_to == self.key for version in lefts) else _joined(None, right, self._spec)


def _check(spec: ForeignKeySpec) -> None:
    """Refuses a pipeline whose join is not made of columns as they are.

    Raises:
        LeftToSpark: it has expressions, or keys that only Spark compares.
    """
    over_left = [sql for sql in (*spec.left.foreign_key, spec.as_of) if sql not in (None, BY_BATCH)]
    for sql, whole in (*((sql, 1) for sql in over_left), *((o.sql, 2) for o in (*spec.outputs, *spec.key_outputs))):
        parsed = parse_expression(sql)
        if not parsed.plain or len(parsed.reads[0]) > (whole if parsed.reads[0][0].lower() in SIDES else 1):
            raise LeftToSpark(f"'{sql}' is evaluated by Spark only")
    check_sides(spec.left, spec.right)


def _subscribed_to(spec: ForeignKeySpec) -> dict[str, str]:
    """Returns, per column of what a left row subscribes to, the column of the left changelog that it is."""
    times = [] if spec.as_of is None else [s.BATCH if spec.as_of_batch else spec.as_of]
    columns = []
    for sql in (*spec.left.foreign_key, *times):
        column = None if sql == s.BATCH else spec.left.column(parse_expression(sql).reads[0][0])
        columns.append(s.BATCH if column is None else column.name)
    return dict(zip(k.subscribed(spec), columns, strict=True))


def _log(table: Relation, spec: ForeignKeySpec, side: Side, has_key: RowTest | None) -> tuple[pa.Table, list[JsonRow]]:
    """Returns the rows of a changelog of some keys, and all truncates, in the source's order.

    Args:
        table: the changelog.
        spec: the pipeline.
        side: its side.
        has_key: the condition that a row has one of the keys; None: there are none.

    Returns:
        The rows, and the same as JSON with the hash of their content.
    """
    declared = spec.side(side)
    first = declared.key_columns[0].name
    where = NullTest(first) if has_key is None else AnyTest((has_key, NullTest(first)))
    columns = [*VERSION_COLUMNS, s.HASH, *(c.name for c in declared.columns)]
    columns += [] if declared.valid_from is None else [s.VALID_FROM]
    rows = _with_derived(in_source_order(table.read(RowRequest(columns, [where])), declared), spec, side)
    as_json, digests = json_of(rows), _contents(rows, spec, side)
    keeps_versions = side == Side.RIGHT and spec.as_of is not None  # then a deletion is a version, and has a hash
    for row, digest in zip(as_json, digests, strict=True):
        gone = row[first] is None if keeps_versions else row[s.DELETED]
        row[s.HASH] = None if gone else digest.hex().upper()
    return rows, as_json


def _contents(rows: pa.Table, spec: ForeignKeySpec, side: Side) -> list[bytes]:
    """Returns the hashes of the content of rows of a changelog, as `changelog.with_content` computes them.

    That of a row without content has no meaning.

    Raises:
        LeftToSpark: the hash of a whole row is not the stored one.
    """
    content, names = content_columns(spec, side), [c.name for c in spec.side(side).columns]
    stored: list[bytes]
    stored, deleted = rows[s.HASH].to_pylist(), rows[s.DELETED].to_pylist()
    if not stored or {*content} == {*names}:
        return stored
    since = [] if spec.side(side).valid_from is None else [s.VALID_FROM]
    digests = row_digests(rows, [*names, *since])
    if any(digest != other for digest, other, gone in zip(digests, stored, deleted, strict=True) if not gone):
        raise LeftToSpark("the hash of a row is another one than this process computes")
    return row_digests(rows, content)


def _with_derived(rows: pa.Table, spec: ForeignKeySpec, side: Side) -> pa.Table:
    """Returns rows of a changelog with what follows from them.

    A left row gets the columns of what it subscribes to, all null if one is; a right row gets the time since which it
    holds.
    """
    if side == Side.RIGHT:
        return rows.append_column(s.VALID_FROM, rows[s.BATCH]) if spec.as_of_batch else rows
    columns = {name: rows[of] for name, of in _subscribed_to(spec).items()}
    whole = reduce(pc.and_, map(pc.is_valid, columns.values()), pc.invert(rows[s.DELETED]))
    for name, column in columns.items():
        rows = rows.append_column(name, pc.if_else(whole, column, pa.nulls(len(rows), column.type)))
    return rows


def _living(rows: Sequence[JsonRow], spec: ForeignKeySpec, side: Side) -> Iterator[Version]:
    """Yields the current versions of a side that are no deletions."""
    return (version for version in versions_of(rows, spec, side) if version.current and version.row is not None)


def _end_of(version: Version, rights: Sequence[Version], spec: ForeignKeySpec) -> Any:
    """Returns the time from which a version does not hold any more: None while it holds."""
    later = [right.at for right in rights if right.current and right.key == version.key]
    later += [right.batch for right in rights if right.key is None and spec.as_of_batch]
    return min((at for at in later if at > version.at), default=None)


def _joined(left: Version | None, right: Version | None, spec: ForeignKeySpec, end: Any = None) -> JsonRow:
    """Returns the selected columns of a pair of rows, of which one may be missing; the right one holds until `end`."""
    validity = {} if right is None else dict(zip(VALIDITY, (right.at, end), strict=True))
    rows = {
        Side.LEFT: {} if left is None else left.row or {},
        Side.RIGHT: {} if right is None else validity | (right.row or {}),
    }
    return {o.name: rows[side].get(column.name) for o in spec.outputs for side, column in spec.reads(o)}


def _quarantined(table: Relation, keys: Mapping[str, JsonRow | None]) -> list[JsonRow]:
    """Returns the newest records of the quarantine whose lines name a key, oldest first.

    Raises:
        LeftToSpark: there are pairs of rows, which Spark reads; or a line has rare letters.
    """
    of_pairs = is_value(s.SIDE, OF_PAIRS, pa.string())
    if len(table.read(RowRequest([s.SIDE], [of_pairs], limit=1))):
        raise LeftToSpark("pairs of rows are in the quarantine, which Spark reads")
    order = [(name, True) for name in (s.BATCH, s.FILE, s.LINE)]
    records = table.read(RowRequest([*RECORD, s.RAW], order=order))
    sides, raws = records[s.SIDE].to_pylist(), records[s.RAW].to_pylist()
    named = [
        i
        for i, (side, raw) in enumerate(zip(sides, raws, strict=True))
        if raw is not None and (key := keys.get(side)) is not None and _names(key, raw)
    ][:MOST_QUARANTINED]
    return [row for i in reversed(named) for row in json_of(records.select([*RECORD]).slice(i, 1))]


def _names(key: JsonRow, raw: str) -> bool:
    """Returns whether a line has all values of a key, as `evidence_by_spark.names_key` decides.

    Raises:
        LeftToSpark: the line has letters that versions of Python and Java may not both know.
    """
    if not all(str(value) in raw for value in key.values()):
        return False
    if max(raw, default="") > _KNOWN_LETTERS:
        raise LeftToSpark("a line in the quarantine has rare letters, which Spark tells apart")
    return all(
        re.search(behind if re.search(column, raw) else anywhere, raw) is not None
        for column, behind, anywhere in naming_patterns(key, r"\w", r"\W", re.escape, "(?ai:")
    )
