"""A small join with a history: inserts, updates, a moved foreign key, deletes, a truncate, on both sides."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec, quote
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.store.skipping import Condition, Within
from fk_pipeline.store.warehouse import Warehouse
from tests.mutations import Mutation, Several

PIPELINE_FILE = """
name: checked
join: {join}
left: {{path: left, format: rows, schema: "id INT, ref STRING, v STRING, note STRING", key: id, op_column: op,
       foreign_key: UPPER(ref)}}
right: {{path: right, format: rows, schema: "k STRING, name STRING, note STRING", key: k, op_column: op}}
select: [id, v, name]
"""

Row = dict[str, Any]


def left(id_: int, ref: str | None = None, v: str = "v", op: str = "u") -> Row:
    return {"op": op, "id": id_} | ({} if op == "d" else {"ref": ref, "v": v, "note": "n"})


def right(k: str, name: str | None = None) -> Row:
    return {"op": "d", "k": k} if name is None else {"op": "u", "k": k, "name": name, "note": "n"}


HISTORY: dict[str, Sequence[Row]] = {
    "left/0.jsonl": [left(70, "a"), left(71, "b")],
    "right/0.jsonl": [right("A", "zeroth"), right("Z", "zeroth")],
    "left/1.jsonl": [
        {"op": "t"},
        *(left(i, "ab"[i % 2]) for i in range(8)),
        left(20, "nowhere"),
        left(21),
        left(22, op="d"),
        left(23, "c"),
    ],
    "right/1.jsonl": [{"op": "t"}, right("A", "first"), right("B", "second"), right("C", "third")],
    "left/2.jsonl": [left(0, "b", "w"), left(1, op="d"), left(9, "a")],
    "right/2.jsonl": [right("B", "changed"), right("C")],
}
"""Per landing file, its rows. Left keys: 70 and 71 were truncated; 20 has no match, 21 no foreign key; 22 has only a
delete; 23 lost its right row."""


def land(folder: Path, files: Mapping[str, Sequence[Row]]) -> None:
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def make(
    folder: Path, spark: SparkSession | None, join: str = "inner", more: str = "", sizes: Sizes = MEASURED
) -> Pipeline:
    """Returns the pipeline, with landed files and no run."""
    (folder / "pipeline.yaml").write_text(PIPELINE_FILE.format(join=join) + more)
    land(folder, HISTORY)
    return Pipeline(load_spec(folder / "pipeline.yaml"), spark, sizes=sizes)


@contextmanager
def mutated(
    monkeypatch: Any, changes: Mapping[str, Mutation | Several], seen: set[str] | None = None
) -> Iterator[None]:
    """Makes every read of these tables return changed rows; `seen` collects the names of all tables that are read."""
    read, read_in_process, look_up = Warehouse.read, Warehouse.read_in_process, Warehouse.look_up

    def changed(
        self: Warehouse, table: Table, version: int | None = None, where: Sequence[Condition] = ()
    ) -> DataFrame:
        if seen is not None:
            seen.add(table.name)
        if table.name not in changes:
            return read(self, table, version, where)
        rows = changes[table.name].of(read(self, table, version))
        for condition in where:
            rows = rows.where(condition.sql())
        return rows

    def changed_in_process(
        self: Warehouse, table: Table, version: int, columns: Collection[str], within: Within
    ) -> pa.Table | None:
        if seen is not None:
            seen.add(table.name)
        here = read_in_process(self, table, version, columns, within)
        if here is None or table.name not in changes:
            return here
        return changed(self, table, version, [within]).select(*map(quote, columns)).toArrow().cast(here.schema)

    def looked_up(self: Warehouse, table: Table, *how: Any) -> pa.Table | None:
        if seen is not None:
            seen.add(table.name)
        return look_up(self, table, *how) if table.name not in changes else None

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "look_up", looked_up)
        patched.setattr(Warehouse, "read", changed)
        patched.setattr(Warehouse, "read_in_process", changed_in_process)
        yield
