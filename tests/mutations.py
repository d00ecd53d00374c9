"""Changes that no stage makes, applied to the rows of a table in memory or to the stored Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Update:
    """Sets columns of some rows; `values` is SQL by column."""

    where: str
    values: Mapping[str, str]

    def of(self, frame: DataFrame) -> DataFrame:
        changed = {
            c: F.expr(f"IF({self.where}, {sql}, `{c}`)").cast(frame.schema[c].dataType)
            for c, sql in self.values.items()
        }
        return frame.select(*[changed.get(c, F.col(f"`{c}`")).alias(c) for c in frame.columns])

    def sql(self, table: str) -> str:
        return f"UPDATE {table} SET {', '.join(f'`{c}` = {sql}' for c, sql in self.values.items())} WHERE {self.where}"


@dataclass(frozen=True)
class Delete:
    """Removes some rows."""

    where: str

    def of(self, frame: DataFrame) -> DataFrame:
        return frame.where(f"NOT COALESCE({self.where}, FALSE)")

    def sql(self, table: str) -> str:
        return f"DELETE FROM {table} WHERE {self.where}"


@dataclass(frozen=True)
class Copy:
    """Adds a copy of some rows, with other values; `values` is SQL by column."""

    where: str
    values: Mapping[str, str] = field(default_factory=dict)

    def of(self, frame: DataFrame) -> DataFrame:
        return frame.unionByName(Update("TRUE", self.values).of(frame.where(self.where)))

    def sql(self, table: str) -> str:
        others = f" EXCEPT ({', '.join(self.values)})" if self.values else ""
        changed = "".join(f", {sql} AS `{c}`" for c, sql in self.values.items())
        return f"INSERT INTO {table} BY NAME SELECT *{others}{changed} FROM {table} WHERE {self.where}"


Mutation = Update | Delete | Copy


@dataclass(frozen=True)
class Several:
    """Several changes of one table in memory, one after the other."""

    changes: Sequence[Mutation]

    def of(self, frame: DataFrame) -> DataFrame:
        return reduce(lambda rows, change: change.of(rows), self.changes, frame)
