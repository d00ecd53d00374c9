"""What the machine needs to know of a kind: its pipeline files, its definition in plain Python, its hashes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from fk_pipeline.contract import Kind
from fk_pipeline.kinds.aggregate.kind import AGGREGATE
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from fk_pipeline.kinds.query.kind import QUERY
from fk_pipeline.kinds.registry import KINDS
from fk_pipeline.kinds.table.kind import TABLE
from fk_pipeline.kinds.window.kind import WINDOW
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.any_order import dated, queries, windowed
from tests.any_order.dated import DatedHistories, time_of
from tests.any_order.histories import LEFT, MORE, RIGHT, SCHEMAS, Content, Histories, Key, Place
from tests.any_order.windowed import WindowedHistories
from tests.kinds.semi_join.kind import SEMI_JOIN

WAYS = {
    "by the driver": MEASURED,
    "by keys on Spark": Sizes(small_rows=-1, rewritten_rows=-1, indexed_rows=1, driver_keys=-1, scanned_bytes=-1),
    "whole tables": Sizes(driver_rows=-1, driver_keys=-1, sent_bytes=-1000, small_bytes=-1, broadcast_bytes=-1),
    "responses computed with the result": Sizes(driver_rows=-1, sent_bytes=-1000, small_bytes=-1, unwritten_rows=-1),
    "with deletion vectors": Sizes(rewritten_rows=-1, indexed_rows=1),
}
"""Sizes with which few rows are read and written in another physical way."""

REFERENCES = {"semi_join": "tests.kinds.semi_join.kind:SEMI_JOIN"}
"""The kinds that are registered for the tests only."""

FILE = "pipeline.yaml"
"""The pipeline file of the result."""

REFERS = "    foreign_key: fk\n"
"""What a left row refers to, in the pipeline file."""

Rows = dict[Key, tuple[Any, ...]]
"""Rows of a result by their key: the selected values."""


def register() -> None:
    """Registers the kinds of the tests in this process."""
    KINDS.update(REFERENCES)


@contextmanager
def registered() -> Iterator[None]:
    """Registers the kinds of the tests for a block."""
    before = dict(KINDS)
    register()
    try:
        yield
    finally:
        KINDS.clear()
        KINDS.update(before)


Files = dict[str, str]
"""Pipeline files by their names, each after those whose results it reads."""


def _join_file(subject: Subject, join: str, schemas: Mapping[str, str], order: str, declared: Iterable[str]) -> Files:
    options = subject.options
    text = (
        f"name: any_order\nkind: {subject.kind.name}\njoin: {join}\n{options.get('', '')}"
        f'left:\n    path: landing/left\n    format: rows\n    schema: "{schemas[LEFT]}"\n    key: id\n'
        f"    op_column: op\n{options.get(LEFT, '')}{order}"
        f'right:\n    path: landing/right\n    format: rows\n    schema: "{schemas[RIGHT]}"\n    key: k\n'
        f"    op_column: op\n{options.get(RIGHT, '')}{order}"
        f"select: [{', '.join(subject.columns(join, declared))}]\n"
    )
    return {FILE: text}


@dataclass(frozen=True)
class Subject:
    """A kind as the machine tests it: one pipeline, or several of which the last reads the results of the others.

    Attributes:
        name: of the subject, for `--kind`.
        kind: the kind.
        joins: the values of `join` that it is tested with, or the names of what is varied in its place.
        columns: function of join and declared fields that returns the columns of `select`.
        result: function of pipeline, join and declared fields that returns the rows of the result.
        expected: function of histories, landed contents, join and declared fields that returns the rows it must have.
        stale: function of a pipeline that returns the keys of rows with the hashes of other rows.
        schemas: per side, the columns of its rows.
        options: more lines of the pipeline file: of its top (under ""), of a side (under its name).
        histories: draws the contents of the batches.
        number: the number of rows of the result that such rows stand for.
        shown: the tables with rows about a key, shown when it is wrong: SQL (BOOLEAN) per table and kind of key.
        sides: the sides of the histories that its inputs are.
        files: function of the subject, a join, the schemas per side, the line about the order, and declared fields that
            returns the pipeline files. Together they read the landing files of the sides, in this order; `FILE`, the
            last, has the result.
        explained: function from a join and a left key to a key that `explain` takes.
    """

    name: str
    kind: Kind
    joins: tuple[str, ...]
    columns: Callable[[str, Iterable[str]], list[str]]
    result: Callable[[Pipeline, str, Iterable[str]], Rows]
    expected: Callable[[Histories, Mapping[Place, Content], str, Iterable[str]], Rows]
    stale: Callable[[Pipeline], list[Any]]
    shown: Callable[[Key], dict[str, str]]
    schemas: Mapping[str, str] = field(default_factory=lambda: SCHEMAS)
    options: Mapping[str, str] = field(default_factory=lambda: {LEFT: REFERS})
    histories: Callable[..., Histories] = Histories
    number: Callable[[Rows], int] = len
    sides: tuple[str, ...] = (LEFT, RIGHT)
    files: Callable[[Subject, str, Mapping[str, str], str, Iterable[str]], Files] = _join_file
    explained: Callable[[str, int], str] = lambda _, key: str(key)

    def write(
        self, folder: Path, join: str, order: str = "", declared: Collection[str] = (), more: str = ""
    ) -> list[Path]:
        """Writes the pipeline files into a folder; returns them in the order in which they run.

        Args:
            folder: the folder.
            join: the value of `join`.
            order: the line about the order of the rows of an input.
            declared: the fields of `MORE` that the schemas have.
            more: further lines of each file.
        """
        schemas = {
            side: ", ".join([self.schemas[side], *(f"{field} STRING" for field in {MORE[side]} & {*declared})])
            for side in self.sides
        }
        written = []
        for name, text in self.files(self, join, schemas, order, declared).items():
            written.append(folder / name)
            written[-1].write_text(text + more)
        return written


def _columns(join: str, declared: Iterable[str]) -> list[str]:
    return ["id", "v", "fk", "name", *sorted(declared)]


def _result(pipeline: Pipeline, join: str, declared: Iterable[str]) -> Rows:
    """Returns the selected values by left key, or by the right key of a row without a left row."""
    keys = ["_fk_pk_id", "_fk_alone_k"] if join == "outer" else ["_fk_pk_id"]
    found: Rows = {}
    for row in pipeline.table("resolved_join").select(*keys, *_columns(join, declared)).collect():
        (key,) = (row[name] for name in keys if row[name] is not None)
        assert row["id"] == row["_fk_pk_id"], row
        assert key not in found, f"key {key} has two rows"
        found[key] = tuple(row[len(keys) + 1 :])
    return found


def _stale(pipeline: Pipeline) -> list[Any]:
    """Returns the rows that do not have the hashes of the current rows (architecture, rule 3)."""
    result, left = pipeline.table("resolved_join"), pipeline.table("subscription_store").alias("s")
    right = pipeline.table("right_table").select("k", "_fk_hash").alias("t")
    there = result.where("_fk_pk_id IS NOT NULL").alias("r").join(left, "_fk_pk_id", "left")
    rows = there.join(right, F.col("s._fk_fk_k") == F.col("t.k"), "left").where(
        "NOT (r._fk_left_hash <=> s._fk_hash AND r._fk_right_hash <=> t._fk_hash AND r._fk_fk_k <=> s._fk_fk_k)"
    )
    alone = result.where("_fk_pk_id IS NULL").alias("r").join(right, F.col("r._fk_fk_k") == F.col("t.k"), "left")
    alone = alone.where("r._fk_left_hash IS NOT NULL OR NOT (r._fk_right_hash <=> t._fk_hash)")
    return [*(row[0] for row in rows.select("_fk_pk_id").collect()), *(row[0] for row in alone.select("k").collect())]


def _shown(key: Key) -> dict[str, str]:
    of_key = f"_fk_pk_id = {key}" if isinstance(key, int) else f"_fk_fk_k = '{key}'"
    return dict.fromkeys(("subscription_store", "responses", "verdicts"), of_key)


FOREIGN_KEY_JOIN = Subject(
    "foreign_key", FOREIGN_KEY, ("left", "inner", "outer"), _columns, _result, Histories.join, _stale, _shown
)


def _dated_columns(_join: str, _declared: Iterable[str]) -> list[str]:
    return ["id", "v", "fk", "name", "right.since AS since"]


def _dated(pipeline: Pipeline, _join: str, _declared: Iterable[str]) -> Rows:
    rows = pipeline.table("resolved_join").select("id", "v", "fk", "name", F.col("since").cast("string")).collect()
    found: Rows = {row[0]: tuple(row[1:]) for row in rows}
    assert len(found) == len(rows)
    return found


def _stale_dated(pipeline: Pipeline) -> list[Any]:
    """Returns the rows that do not have the hash of the current left row, or of a version of its foreign key."""
    left = pipeline.table("subscription_store").select("_fk_pk_id", F.col("_fk_hash").alias("now"))
    right = pipeline.table("right_table").where("NOT _fk_deleted")
    right = right.select(
        F.col("k").alias("_fk_fk_k"), F.col("_fk_hash").alias("_fk_right_hash"), F.lit(True).alias("is")
    )
    rows = pipeline.table("resolved_join").join(left, "_fk_pk_id", "left")
    rows = rows.join(right, ["_fk_fk_k", "_fk_right_hash"], "left")
    wrong = rows.where("NOT (_fk_left_hash <=> now) OR (_fk_right_hash IS NOT NULL AND is IS NULL)")
    return [row[0] for row in wrong.select("_fk_pk_id").collect()]


AS_OF = Subject(
    "as_of",
    FOREIGN_KEY,
    ("left", "inner"),
    _dated_columns,
    _dated,
    DatedHistories.as_of_time,
    _stale_dated,
    _shown,
    dated.SCHEMAS,
    {"": "as_of: at\n", LEFT: REFERS, RIGHT: "    valid_from: since\n"},
    DatedHistories,
)

AS_OF_BATCH = replace(
    AS_OF, name="as_of_batch", expected=DatedHistories.as_of_batch, options={"": "as_of: batch\n", LEFT: REFERS}
)


def _left_columns(join: str, declared: Iterable[str]) -> list[str]:
    return ["id", "v", "fk", *({MORE[LEFT]} & {*declared})]


def _matched(pipeline: Pipeline, join: str, declared: Iterable[str]) -> Rows:
    rows = pipeline.table("matched_rows").select("_fk_key_id", *_left_columns(join, declared)).collect()
    found: Rows = {row[0]: tuple(row[2:]) for row in rows}
    assert len(found) == len(rows)
    return found


def _matching(histories: Histories, landed: Mapping[Place, Content], join: str, declared: Iterable[str]) -> Rows:
    right, names = histories.table(landed, RIGHT), _left_columns(join, declared)[1:]
    left = histories.table(landed, LEFT)
    return {key: tuple(map(row.get, names)) for key, row in left.items() if (row["fk"] or "") in right}


def _stale_matches(pipeline: Pipeline) -> list[Any]:
    left = pipeline.table("left_rows").select("id", F.col("_fk_hash").alias("now"))
    rows = pipeline.table("matched_rows").select(F.col("_fk_key_id").alias("id"), "_fk_hash").join(left, "id", "left")
    return [row[0] for row in rows.where("NOT (_fk_hash <=> now)").collect()]


SEMI = Subject(
    "semi_join",
    SEMI_JOIN,
    ("inner",),
    _left_columns,
    _matched,
    _matching,
    _stale_matches,
    lambda key: {"left_rows": f"id = {key}"},
)


def _pair_columns(_join: str, declared: Iterable[str]) -> list[str]:
    return ["v", "name", *sorted(declared)]


def _pairs(pipeline: Pipeline, join: str, declared: Iterable[str]) -> Rows:
    """Returns the pairs by left key, and the right rows alone."""
    rows = pipeline.table("resolved_join").select("_fk_pk_id", "_fk_rk_k", *_pair_columns(join, declared)).collect()
    found: dict[Key, list[Any]] = {}
    alone: Rows = {}
    for left, right, *values in rows:
        if left is not None:
            found.setdefault(left, []).append((right, *values))
        else:
            assert right not in alone
            alone[right] = tuple(values)
    return {key: tuple(sorted(pairs, key=str)) for key, pairs in found.items()} | alone


def _stale_pairs(pipeline: Pipeline) -> list[Any]:
    """Returns the keys of rows that do not have the hashes of the current rows."""
    rows = pipeline.table("resolved_join")
    left = pipeline.table("left_table").select(F.col("id").alias("_fk_pk_id"), F.col("_fk_hash").alias("l"))
    right = pipeline.table("right_table").select(F.col("k").alias("_fk_rk_k"), F.col("_fk_hash").alias("r"))
    rows = rows.join(left, "_fk_pk_id", "left").join(right, "_fk_rk_k", "left")
    wrong = rows.where("NOT (_fk_left_hash <=> l AND _fk_right_hash <=> r)").select("_fk_pk_id", "_fk_rk_k").collect()
    return [left if left is not None else right for left, right in wrong]


WINDOW_JOIN = Subject(
    "window",
    WINDOW,
    ("left", "inner", "outer"),
    _pair_columns,
    _pairs,
    WindowedHistories.pairs,
    _stale_pairs,
    lambda key: {
        "left_table": f"id = {key}" if isinstance(key, int) else "FALSE",
        "right_table": f"k = '{key}'" if not isinstance(key, int) else f"k LIKE '{key // 2}_'",
    },
    dated.SCHEMAS,
    {
        "": windowed.FILE,
        LEFT: f'    on: "{windowed.WORLD.format("fk")}"\n    time: at\n',
        RIGHT: f'    on: "{windowed.WORLD.format("k")}"\n    time: since\n',
    },
    WindowedHistories,
    lambda rows: sum(len(pairs) if isinstance(key, int) else 1 for key, pairs in rows.items()),
)

WINDOW_AT_ONCE = replace(
    WINDOW_JOIN,
    name="window_at_once",
    joins=("left", "outer"),
    expected=WindowedHistories.pairs_at_once,
    options=WINDOW_JOIN.options | {"": f"{windowed.FILE}unmatched: at_once\n"},
)

_SIZE, _EVERY = 6, 4


def _aggregate_file(
    subject: Subject, _join: str, schemas: Mapping[str, str], order: str, _declared: Iterable[str]
) -> Files:
    text = (
        f"name: any_order\nkind: {subject.kind.name}\n"
        f'input:\n    path: landing/left\n    format: rows\n    schema: "{schemas[LEFT]}"\n    key: id\n'
        f"    op_column: op\n{order}group_by: [fk]\n"
        f"window: {{time: at, size: {_SIZE} milliseconds, every: {_EVERY} milliseconds}}\n"
        "aggregates: [count(*) AS n, sum(id) AS ids, 'max(struct(v, id)).id AS best']\n"
    )
    return {FILE: text}


def _windows(pipeline: Pipeline, _join: str, _declared: Iterable[str]) -> Rows:
    """Returns, per group, its windows: start, number of rows, sum and greatest of their keys."""
    found: dict[Key, list[Any]] = {}
    for row in pipeline.table("aggregated").select("fk", "window_start", "n", "ids", "best").collect():
        found.setdefault(row[0] or queries.NULL, []).append(tuple(row[1:]))
    return {key: tuple(sorted(windows)) for key, windows in found.items()}


def _grouped(histories: Histories, landed: Mapping[Place, Content], _join: str, _declared: Iterable[str]) -> Rows:
    last = histories.last(landed, LEFT, lambda _, event: event.key)
    groups: dict[Key, dict[int, list[tuple[str, int]]]] = {}
    for key, (_, event) in last.items():
        if event.row is None:
            continue
        at, value = time_of(event), (str(event.row["v"]), int(key))
        start = at // _EVERY * _EVERY
        while start > at - _SIZE:
            groups.setdefault(event.row["fk"] or queries.NULL, {}).setdefault(start, []).append(value)
            start -= _EVERY
    return {
        key: tuple(
            (start, len(rows), sum(number for _, number in rows), max(rows)[1])
            for start, rows in sorted(windows.items())
        )
        for key, windows in groups.items()
    }


def _stale_groups(pipeline: Pipeline) -> list[Any]:
    """Returns the groups whose rows in the table count in more or fewer windows than the result has (rule 14)."""
    windows = F.expr(f"SUM(1 + IF(PMOD(_fk_at, {_EVERY}) < {_SIZE - _EVERY}, 1, 0))").alias("n")
    table = pipeline.table("table").where("_fk_hash IS NOT NULL").groupBy("_fk_by_fk").agg(windows)
    result = pipeline.table("aggregated").groupBy("_fk_by_fk").agg(F.sum("n").alias("n"))
    both = table.alias("t").join(result.alias("r"), F.expr("t._fk_by_fk <=> r._fk_by_fk"), "full")
    return [
        row[0] for row in both.where("NOT (t.n <=> r.n)").selectExpr("COALESCE(t._fk_by_fk, r._fk_by_fk)").collect()
    ]


AGGREGATE_OF_ONE = Subject(
    "aggregate",
    AGGREGATE,
    ("",),
    lambda *_: [],
    _windows,
    _grouped,
    _stale_groups,
    lambda key: dict.fromkeys(
        ("table", "aggregated"),
        "_fk_by_fk IS NULL" if key == queries.NULL else f"_fk_by_fk = '{key}'",
    ),
    dated.SCHEMAS,
    {},
    DatedHistories,
    lambda rows: sum(map(len, rows.values())),
    sides=(LEFT,),
    files=_aggregate_file,
    explained=lambda _, key: f"fk={key // 2}a,window_start={key % 5 * _EVERY}",
)

_PASSES = "COALESCE(v, 'x') = 'x' OR fk IS NULL"
"""`where` of the table: rows come and go as their values change."""


def _table_file(
    subject: Subject, _join: str, schemas: Mapping[str, str], order: str, _declared: Iterable[str]
) -> Files:
    text = (
        f"name: any_order\nkind: {subject.kind.name}\n"
        f'input:\n    path: landing/left\n    format: rows\n    schema: "{schemas[LEFT]}"\n    key: id\n'
        f'    op_column: op\n    where: "{_PASSES}"\n{order}'
    )
    return {FILE: text}


def _table_columns(_join: str, declared: Iterable[str]) -> list[str]:
    return ["fk", "v", "unused", *({MORE[LEFT]} & {*declared})]


def _table(pipeline: Pipeline, join: str, declared: Iterable[str]) -> Rows:
    """Returns the rows by their key."""
    rows = pipeline.table("table").select("id", *_table_columns(join, declared)).collect()
    found: Rows = {row[0]: tuple(row[1:]) for row in rows}
    assert len(found) == len(rows)
    return found


def _passing(histories: Histories, landed: Mapping[Place, Content], join: str, declared: Iterable[str]) -> Rows:
    names, rows = _table_columns(join, declared), histories.table(landed, LEFT)
    kept = {key: row for key, row in rows.items() if (row["v"] or "x") == "x" or row["fk"] is None}
    return {key: tuple(map(row.get, names)) for key, row in kept.items()}


def _stale_rows(pipeline: Pipeline) -> list[Any]:
    """Returns the keys of rows that do not have the hash of the version that counts (architecture, rule 15)."""
    versions = pipeline.table("versions").select("id", F.col("_fk_hash").alias("now"))
    rows = pipeline.table("table").select("id", "_fk_hash").join(versions, "id", "full")
    return [row[0] for row in rows.where("NOT (_fk_hash <=> now)").select("id").collect()]


TABLE_OF_ONE = Subject(
    "table",
    TABLE,
    ("",),
    _table_columns,
    _table,
    _passing,
    _stale_rows,
    lambda key: {"versions": f"id = {key}"},
    sides=(LEFT,),
    files=_table_file,
)

QUERY_OF_TABLES = Subject(
    "query",
    QUERY,
    tuple(queries.FORMS),
    lambda *_: [],
    queries.result,
    queries.expected,
    queries.stale,
    lambda _: {},
    number=queries.number,
    files=queries.files,
    explained=lambda form, key: queries.FORMS[form].explained(key),
)

_JOINS = (FOREIGN_KEY_JOIN, AS_OF, AS_OF_BATCH, SEMI, WINDOW_JOIN, WINDOW_AT_ONCE)
_ALL = (*_JOINS, AGGREGATE_OF_ONE, TABLE_OF_ONE, QUERY_OF_TABLES)

SUBJECTS = {subject.name: subject for subject in _ALL}
"""The subjects by their names."""
