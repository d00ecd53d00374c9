"""Random queries as people write them, kept up to date while their tables change: SQLite runs the same text.

`FK_TEST_QUERIES=FIRST:LAST pytest -s -m slow tests/kinds/query/test_written_queries.py` runs those of other seeds, and
prints each that is wrong as soon as it is.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from fk_pipeline.blocks.select.parsing import parse_query
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.sql import parse_columns
from tests.kinds.query.model import TABLES, Row, put, random_row
from tests.kinds.query.refreshed_blocks import first_wrong
from tests.kinds.query.written_queries import random_text, tables_of

SEEDS = range(*(int(one) for one in os.environ.get("FK_TEST_QUERIES", "0:40").split(":")))
"""The seeds of the slow tests."""

COLUMNS = {table.name: parse_columns(", ".join(f"{c} BIGINT" for c in table.columns)) for table in TABLES}
KEYS = {table.name: [table.key] for table in TABLES}

FEED = {"delta.enableChangeDataFeed": "true"}


class Lake:
    """Delta tables with few rows, which change at random, and the same in SQLite."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.rows: dict[str, dict[int, Row]] = {table.name: {} for table in TABLES}
        for table in TABLES:
            for key in range(9):
                if rng.random() < 0.8:
                    self.rows[table.name][key] = random_row(rng, table.name, key)
            write_deltalake(self.path(table.name), self._arrow(table.name), configuration=FEED)

    def path(self, name: str) -> str:
        return str(self.folder / "lake" / name)

    def change(self) -> None:
        """Writes a few rows anew, adds some, and deletes some."""
        for table in TABLES:
            rows, keys = self.rows[table.name], {self.rng.randrange(11) for _ in range(self.rng.choice([0, 1, 2, 3]))}
            if keys:
                DeltaTable(self.path(table.name)).delete(f"id IN ({', '.join(map(str, keys))})")
            for key in keys:
                rows.pop(key, None)
            new = {key: random_row(self.rng, table.name, key) for key in keys if self.rng.random() < 0.7}
            rows |= new
            if new:
                write_deltalake(self.path(table.name), self._arrow(table.name, [*new]), mode="append")

    def database(self) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:")
        for table in TABLES:
            put(db, table.name, table.columns, self.rows[table.name].values())
        return db

    def _arrow(self, name: str, keys: list[int] | None = None) -> pa.Table:
        columns = next(table.columns for table in TABLES if table.name == name)
        rows = [row for key, row in self.rows[name].items() if keys is None or key in keys]
        return pa.table(
            {column: pa.array([row[number] for row in rows], pa.int64()) for number, column in enumerate(columns)}
        )


class Kept:
    """A query that is kept up to date over a lake."""

    def __init__(self, lake: Lake, seed: int, session: SparkSession) -> None:
        self.lake, self.seed, self.text = lake, seed, random_text(random.Random(f"{seed}"))
        self.notes = Counter[str]()
        inputs = "".join(f"  {one}: {{table: lake/{one}, key: id}}\n" for one in tables_of(self.text))
        file = lake.folder / f"q{seed}.yaml"
        file.write_text(f"name: q{seed}\nkind: query\ninputs:\n{inputs}query: |\n  {self.text}\nwarehouse: warehouse\n")
        self.pipeline = Pipeline(load_spec(file), session)

    def refreshed(self) -> str:
        """Runs the query; returns what is wrong with its rows, as text."""
        for run in self.pipeline.run():
            self.notes.update("whole" if "whole" in note else "changes" for note in run.notes[:1])
        rows = self.pipeline.table("result").select(*[f"`{one}`" for one in self.pipeline.spec.blocks.columns])
        found = Counter(map(tuple, rows.collect()))
        expected = Counter(self.lake.database().execute(self.text).fetchall())
        if found == expected:
            return ""
        missing, more = (expected - found).elements(), (found - expected).elements()
        return f"missing {[*missing][:4]}, too many {[*more][:4]}; verify: {self.pipeline.verify()}"


def _tried(what: Callable[[], str]) -> str:
    """Returns what is wrong; of an error its text, so that the other queries go on."""
    try:
        return what()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:1500]


def _wrong(folder: Path, session: SparkSession, seeds: range, steps: int = 4) -> Iterator[str]:
    """Yields what is wrong with queries, in one history of the tables that all of them read."""
    lake, queries, notes = Lake(folder, random.Random(f"lake {seeds}")), dict[int, Kept](), Counter[str]()

    def take(seed: int) -> str:
        queries[seed] = Kept(lake, seed, session)
        return ""

    for seed in seeds:
        if told := _tried(partial(take, seed)):
            yield f"{seed}: {told}\n    {random_text(random.Random(f'{seed}'))}"
    for step in range(steps):
        if step:
            lake.change()
        for seed, query in [*queries.items()]:
            if told := _tried(query.refreshed):
                del queries[seed]
                yield f"{seed}, step {step}: {told}\n    {query.text}"
    for query in queries.values():
        notes += query.notes
    if notes["changes"] < notes["whole"]:
        yield f"{seeds}: computed whole too often, {notes}"


def test_random_texts_have_every_construct_and_rows() -> None:
    texts, db, found = [random_text(random.Random(f"{seed}")) for seed in range(200)], sqlite3.connect(":memory:"), 0
    for table in TABLES:
        put(db, table.name, table.columns, [random_row(random.Random(f"{key}"), table.name, key) for key in range(9)])
    for text in texts:
        found += bool(db.execute(text).fetchall())
    assert found > 100
    words = ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "UNION ALL", "UNION SELECT", "WITH", "DISTINCT")
    words += (
        " EXISTS (",
        "NOT EXISTS (",
        " IN (SELECT",
        "NOT IN (SELECT",
        ") IN (SELECT",
        "HAVING",
        "GROUP BY",
        "CASE",
    )
    assert [word for word in words if sum(word in text for text in texts) < 10] == []


def _tried_without_spark(seeds: range) -> list[str]:
    wrong = []
    for seed in seeds:
        text = random_text(random.Random(f"{seed}"))
        query = parse_query(text, COLUMNS, KEYS)
        for number in range(3):
            if told := first_wrong(text, query, 10 * seed + number):
                wrong.append(f"{seed}, {number}: {told}\n    {text}")
                print(wrong[-1], flush=True)  # noqa: T201
    return wrong


def test_the_blocks_of_written_queries_say_what_a_change_touches() -> None:
    assert _tried_without_spark(range(1000, 1010)) == []


@pytest.mark.slow
def test_so_do_those_of_many() -> None:
    assert _tried_without_spark(range(10 * SEEDS.start, 10 * SEEDS.stop)) == []


@pytest.mark.spark
@pytest.mark.slow  # what a change touches: the tests before; on Spark: test_query.py
def test_written_queries_are_right_after_every_change(tmp_path: Path, spark: SparkSession) -> None:
    assert [*_wrong(tmp_path, spark, range(2000, 2003), steps=3)] == []


@pytest.mark.spark
@pytest.mark.slow
def test_so_are_many(tmp_path: Path, spark: SparkSession) -> None:
    wrong = []
    for first in SEEDS[::20]:
        folder = tmp_path / f"{first}"
        folder.mkdir()
        for told in _wrong(folder, spark, range(first, min(first + 20, SEEDS.stop))):
            print(told, flush=True)  # noqa: T201
            wrong.append(told)
        print(f"until {first + 19}: {len(wrong)} wrong", flush=True)  # noqa: T201
    assert wrong == []
