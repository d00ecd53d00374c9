"""Tables with changing rows, queries over them, and what these must give: SQLite runs the same text."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.kinds.query.model import put

TABLES = {"fact": ("id", "dim", "kind", "v"), "dim": ("id", "region", "w"), "region": ("id", "zone")}
"""The columns of each table; the first is the key. All are BIGINT."""

TABLE = """name: {name}
kind: table
input: {{path: landing/{name}, format: rows, schema: "{columns}", key: id, op_column: op}}
warehouse: warehouse
"""

Row = tuple[Any, ...]


class World:
    """A folder with a pipeline of `kind: table` per table, and pipelines of queries."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session = folder, session
        self.landed: dict[tuple[str, int], list[Row]] = {}
        self.texts: dict[str, str] = {}
        self.pipelines: dict[str, Pipeline] = {}
        for name, columns in TABLES.items():
            ddl = ", ".join(f"{column} BIGINT" for column in columns)
            (folder / f"{name}.yaml").write_text(TABLE.format(name=name, columns=ddl))

    def at(self, name: str) -> Pipeline:
        """Returns a pipeline; one of a query after those that it reads have run."""
        if name not in self.pipelines:
            self.pipelines[name] = Pipeline(load_spec(self.folder / f"{name}.yaml"), self.session)
        return self.pipelines[name]

    def query(self, name: str, text: str, more: str = "", inputs: Mapping[str, str] | None = None) -> None:
        """Writes the pipeline file of a query; `inputs` are those that are not the results of pipelines."""
        given = dict(inputs or {})
        given |= {
            table: f"{{pipeline: {table}.yaml}}"
            for table in TABLES
            if re.search(rf"(FROM|JOIN) {table}\b|, {table} [a-z]", text)
        }
        lines = "".join(f"  {one}: {how}\n" for one, how in given.items())
        file = f"name: {name}\nkind: query\ninputs:\n{lines}query: |\n  {text}\nwarehouse: warehouse\n{more}"
        (self.folder / f"{name}.yaml").write_text(file)
        self.texts[name] = text
        self.pipelines.pop(name, None)

    def land(self, table: str, batch: int, *rows: Row) -> None:
        """Writes a batch; a row of a key alone is a delete."""
        self.landed[table, batch] = [*rows]
        file = self.folder / "landing" / table / f"{batch:08d}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [{"op": "d" if len(row) == 1 else "u", **dict(zip(TABLES[table], row, strict=False))} for row in rows]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def withdraw(self, table: str, batch: int) -> None:
        """Takes a batch back."""
        self.at(table).remove_batch(batch)
        del self.landed[table, batch]

    def database(self) -> sqlite3.Connection:
        """Returns the tables as they must be: the last version of each key."""
        db = sqlite3.connect(":memory:")
        for table, columns in TABLES.items():
            batches = sorted(batch for name, batch in self.landed if name == table)
            last = {row[0]: row for batch in batches for row in self.landed[table, batch]}
            put(db, table, columns, [row for row in last.values() if len(row) > 1])
        return db

    def check(self, name: str, db: sqlite3.Connection | None = None, *, prove: bool = True) -> list[Row]:
        """Asserts that a query has the rows that it must have, and that the proof agrees; returns them in order."""
        pipeline = self.at(name)
        found = pipeline.table("result").select(*[f"`{one}`" for one in pipeline.spec.blocks.columns]).collect()
        expected = (db or self.database()).execute(self.texts[name]).fetchall()
        assert Counter(map(tuple, found)) == Counter(expected), name
        if not prove:
            return sorted(map(tuple, found), key=repr)
        report = pipeline.verify()
        assert (report.ok, report.rows) == (True, len(expected)), report
        return sorted(map(tuple, found), key=repr)
