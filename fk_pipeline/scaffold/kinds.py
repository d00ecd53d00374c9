"""A commented pipeline file of each kind to begin with, without a sample: what `dg scaffold defs` writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.examples import EXAMPLE_LEFT, EXAMPLE_RIGHT
from fk_pipeline.scaffold.foreign_key import propose
from fk_pipeline.scaffold.text import pipeline_text, yaml_of
from fk_pipeline.scaffold.write import name_of

_END = """\

warehouse: {warehouse}               # folder or URI of the tables, all below {warehouse}/{name}
on_bad_record: quarantine          # or fail: a record that cannot be read stops its batch
schema_changes: evolve             # or ignore, fail: when the source sends other columns than before

# settings:
#   driver_memory: 4g          # heap of a local Spark
#   sensor_seconds: 15         # how often Dagster looks for new files
"""

_WINDOW = """\
# Impressions (left), each with the clicks (right) of the same user within half an hour after it.
# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference.
name: {name}
kind: window
join: left                         # left: an impression without a click stays, with nulls; inner: it does not

left:
  path: {paths[0]}                 # a folder, a glob, or a URI; the last number in a file's name is its batch
  format: rows
  schema: "user STRING, shown_at TIMESTAMP, ad STRING"
  contents: events                 # rows without a key, which all happened; of a table: the key instead
  on: user                         # what the rows of a pair have in common: a SQL expression, or a list
  time: shown_at                   # when it happened

right:
  path: {paths[1]}
  format: rows
  schema: "user STRING, clicked_at TIMESTAMP"
  contents: events
  on: user
  time: clicked_at

within: {{before: 0 seconds, after: 30 minutes}}   # the span of time of the right row, around that of the left row
grace: 5 minutes                   # how much later than its time an event may land
unmatched: when_closed             # or at_once: when a left row without a match stands alone

select: [left.user AS user, ad, shown_at, clicked_at]
"""

_AGGREGATE = """\
# Orders, counted and added up per customer.
# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference.
name: {name}
kind: aggregate

input:
  path: {paths[0]}                 # a folder, a glob, or a URI; the last number in a file's name is its batch
  format: rows
  schema: "order_id BIGINT, customer STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP"
  key: order_id                    # what identifies a row: a later change replaces it
  op_column: op                    # says what a row does: insert, update or delete

group_by: [customer]               # SQL expressions
# window: {{size: 1 hour, time: ordered_at}}   # one group per hour besides
aggregates:
  - count(*) AS orders
  - sum(amount) AS total
# having: orders > 1               # which groups are in the result
"""


_TABLE = """\
# The current orders: one row per key, from its changes.
# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference.
name: {name}
kind: table

input:
  path: {paths[0]}                 # a folder, a glob, or a URI; the last number in a file's name is its batch
  format: rows
  schema: "order_id BIGINT, customer STRING, amount DECIMAL(10,2), status STRING"
  key: order_id                    # what identifies a row: a later change replaces it
  op_column: op                    # says what a row does: insert, update or delete
  # where: status <> 'cancelled'   # rows on which it is not true are not there
"""


_CUSTOMERS = """\
# The current customers: one row per key, from their changes.
# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference.
name: {name}
kind: table

input:
  path: {paths[0]}                 # a folder, a glob, or a URI; the last number in a file's name is its batch
  format: rows
  schema: "customer STRING, country STRING"
  key: customer                    # what identifies a row: a later change replaces it
  op_column: op                    # says what a row does: insert, update or delete
"""

_QUERY = """\
# The open orders of each country, counted and added up: a query over two tables, kept up to date from what changed.
# Paths are relative to this file. Everything that may stand here: the page `pipeline file` of the reference.
name: {name}
kind: query

inputs:                            # the tables in FROM: results of pipelines, or Delta tables (table: PATH, key: K)
  orders: {{pipeline: {name}_orders.yaml}}
  customers: {{pipeline: {name}_customers.yaml}}

query: |                           # one SELECT in Spark's dialect
  SELECT c.country, COUNT(*) AS orders, SUM(o.amount) AS total
  FROM orders o
  LEFT JOIN customers c ON c.customer = o.customer
  WHERE o.status = 'open'
  GROUP BY c.country

refresh: auto                      # or incremental: refuse to compute the whole; full: always compute the whole
# key: country                     # what identifies a row of the result, for pipelines that read it

warehouse: {warehouse}               # folder or URI of the tables, all below {warehouse}/{name}

# settings:
#   driver_memory: 4g          # heap of a local Spark
#   sensor_seconds: 15         # how often Dagster looks for new versions
"""


def _of_text(text: str, end: str = _END) -> Callable[[str, list[str], str], str]:
    def made(name: str, paths: list[str], warehouse: str) -> str:
        return (text + end).format(name=name, paths=[*map(yaml_of, paths)], warehouse=yaml_of(warehouse))

    return made


def _foreign_key(name: str, paths: list[str], warehouse: str) -> str:
    proposal = propose(EXAMPLE_LEFT, EXAMPLE_RIGHT)
    return pipeline_text(name, EXAMPLE_LEFT, EXAMPLE_RIGHT, paths, proposal, None, warehouse)[0]


@dataclass(frozen=True)
class FirstPipeline:
    """A pipeline to begin with.

    Attributes:
        tables: the names of the landing folders, in the order of the inputs.
        text: function of the name of the pipeline, the paths of the landing folders and the warehouse, as the file
            writes them. It returns the text of the pipeline file.
        beside: per landing folder a pipeline of its own, `<name>_<table>`, whose result the pipeline reads: function as
            `text`; empty if it reads the landing folders itself.
    """

    tables: tuple[str, ...]
    text: Callable[[str, list[str], str], str]
    beside: tuple[Callable[[str, list[str], str], str], ...] = ()


FIRST_PIPELINES = {
    "foreign_key": FirstPipeline(("orders", "customers"), _foreign_key),
    "window": FirstPipeline(("impressions", "clicks"), _of_text(_WINDOW)),
    "aggregate": FirstPipeline(("orders",), _of_text(_AGGREGATE)),
    "table": FirstPipeline(("orders",), _of_text(_TABLE)),
    "query": FirstPipeline(("orders", "customers"), _of_text(_QUERY, ""), (_of_text(_TABLE), _of_text(_CUSTOMERS))),
}
"""Per kind."""


def write_first(folder: Path, kind: str, data: Path) -> Path:
    """Writes a pipeline file to begin with into a folder, and what it reads; returns the file.

    Args:
        folder: the folder of the pipeline file; its name is the name of the pipeline.
        kind: the kind.
        data: where its landing folder and its warehouse belong.

    Raises:
        UsageError: the file exists already.
    """
    name, first = name_of(folder), FIRST_PIPELINES[kind]
    file = folder / f"{name}.yaml"
    beside = [folder / f"{name}_{table}.yaml" for table in first.tables[: len(first.beside)]]
    for target in (file, *beside):
        if target.exists():
            raise UsageError(f"{target} is there already", why="nothing was written", fix="name another folder")
    landing = [data / "landing" / name / table for table in first.tables]
    paths = [os.path.relpath(place.absolute(), folder.absolute()) for place in landing]
    warehouse = os.path.relpath((data / "warehouse").absolute(), folder.absolute())
    for place in (folder, *landing):
        place.mkdir(parents=True, exist_ok=True)
    file.write_text(first.text(name, paths, warehouse), encoding="utf-8")
    for target, path, text in zip(beside, paths, first.beside, strict=False):
        target.write_text(text(target.stem, [path], warehouse), encoding="utf-8")
    return file
