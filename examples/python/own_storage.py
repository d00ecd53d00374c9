"""The five stages as functions: DataFrames in, DataFrames out, and every table where the caller wants it.

    python examples/python/own_storage.py FOLDER

Here the tables are Parquet folders, one per table and step, and the orchestration is a loop. FOLDER gets them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

import fk_pipeline as fk

PIPELINE = """
name: orders
join: left
left: {path: none, format: rows, schema: "id INT, customer STRING, amount INT", key: id, foreign_key: customer}
right: {path: none, format: rows, schema: "customer STRING, name STRING", key: customer}
select: [id, amount, name]
"""
"""`path` has to be there, and nothing reads it."""

STATE = ("left_changelog", "right_changelog", "right_table", "subscription_store", "resolved_join")
"""The tables that one batch leaves to the next."""


class Store:
    """Tables as Parquet folders: a step writes each table that it changes anew, and the newest folder counts."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session = folder, session

    def read(self, table: str, stages: fk.StageFunctions) -> DataFrame:
        """The table as the last step left it."""
        steps = sorted((self.folder / table).glob("*"))
        return self.session.read.parquet(str(steps[-1])) if steps else stages.empty(table)

    def write(self, table: str, rows: DataFrame) -> DataFrame:
        """Another version of the table; what is read from it is what was written."""
        step = self.folder / table / f"{len(list((self.folder / table).glob('*'))):08d}"
        rows.write.parquet(str(step))
        return self.session.read.parquet(str(step))


def run_batch(stages: fk.StageFunctions, store: Store, batch: int, left: DataFrame, right: DataFrame) -> DataFrame:
    """One batch through all stages; returns the verdicts.

    Args:
        stages: of the join.
        store: of its tables.
        batch: its number.
        left: changed left rows, with a column `gone`.
        right: changed right rows, with a column `gone`.
    """
    log, rights, table, subscriptions, result = (store.read(name, stages) for name in STATE)

    others = f"_fk_batch <> {batch}"  # so that a batch may be run again
    brought = stages.changelog("left", left, batch, deleted="gone")
    log = store.write("left_changelog", log.where(others).unionByName(brought))
    brought = stages.changelog("right", right, batch, deleted="gone")
    rights = store.write("right_changelog", rights.where(others).unionByName(brought))

    changed = stages.right_table(rights, table, batch)
    table = store.write("right_table", stages.put("right_table", table, changed))

    changed = stages.subscription_store(log, subscriptions, batch)
    subscriptions = store.write("subscription_store", stages.put("subscription_store", subscriptions, changed))

    answers = stages.responses(subscriptions, table, batch)
    verdicts = stages.verdicts(answers, subscriptions, table, log, result).localCheckpoint()
    alone = stages.unmatched_rights(verdicts, table, result, batch)  # none, unless the join is an outer one
    rows = stages.resolved_join(verdicts).unionByName(alone)
    store.write("resolved_join", stages.put("resolved_join", result, rows))
    return verdicts


def main(folder: Path, session: SparkSession) -> list[Row]:
    """Three batches; returns the result."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "orders.yaml"
    file.write_text(PIPELINE)
    stages, store = fk.StageFunctions(fk.load(file).spec, session), Store(folder / "tables", session)
    orders = "id INT, customer STRING, amount INT, gone BOOLEAN"
    customers = "customer STRING, name STRING, gone BOOLEAN"
    batches = [
        ([(1, "ada", 12, False), (2, "bob", 3, False)], [("ada", "Ada L.", False)]),
        ([], [("bob", "Bob", False)]),
        ([(1, "bob", 12, False), (3, "eve", 7, False)], [("ada", None, True)]),
    ]
    for batch, (left, right) in enumerate(batches):
        verdicts = run_batch(
            stages, store, batch, session.createDataFrame(left, orders), session.createDataFrame(right, customers)
        )
        told = verdicts.groupBy("_fk_verdict").count().orderBy("_fk_verdict").collect()
        print(f"batch {batch}: " + ", ".join(f"{row['count']} {row['_fk_verdict']}" for row in told))
    result = store.read("resolved_join", stages).select("id", "amount", "name").orderBy("id").collect()
    for row in result:
        print(row)
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]), SparkSession.builder.master("local[*]").getOrCreate())
