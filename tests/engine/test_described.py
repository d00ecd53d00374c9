"""What the tables tell people and other readers: descriptions, comments, and statistics of columns."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fk_pipeline.engine.described import MOST_COLUMNS, described
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.kinds.foreign_key.layout import declared_layout
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.store.driver_writes import DriverWriter
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import Sizes

ORDERS = """\
name: orders
join: left
description: One row per order, with the customer as it is now.
descriptions: {name: of the customer}
left:
  path: landing/orders
  format: rows
  schema: "id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE, paid BOOLEAN, note STRING, x DOUBLE"
  key: id
  foreign_key: customer
  sensitive: note
  descriptions: {amount: in pounds}
right:
  path: landing/customers
  format: rows
  schema: "customer STRING, name STRING"
  key: customer
select: [id, amount, day, paid, note, x, name]
"""


def spec_of(folder: Path, more: str = "") -> PipelineSpec:
    file = folder / "orders.yaml"
    file.write_text(ORDERS + more)
    return load_spec(file)


def result_of(spec: PipelineSpec) -> Table:
    return described(spec, declared_layout(spec))["resolved_join"]


def added(table: DeltaTable) -> list[dict[str, Any]]:
    """Returns the statistics of the files of a table, as its log has them."""
    [log] = Path(table.table_uri.removeprefix("file://")).glob("_delta_log/*.json")
    actions = map(json.loads, log.read_text().splitlines())
    return [json.loads(action["add"]["stats"]) for action in actions if "add" in action]


def test_a_table_tells_what_it_is_and_what_its_columns_mean(tmp_path: Path) -> None:
    layout = described(spec_of(tmp_path), declared_layout(spec_of(tmp_path)))
    assert all(table.description for table in layout.tables)
    result, log, other = layout.of("resolved_join", "left_changelog", "right_changelog")
    assert result.description.startswith("One row per order, with the customer as it is now.\n\nThe join.")
    assert (result.comments["amount"], result.comments["name"]) == ("in pounds", "of the customer")
    assert "x" not in result.comments, "there is nothing to tell"
    assert log.comments["amount"] == "in pounds"
    assert {*log.names} - {*log.comments} == {"id", "customer", "day", "paid", "note", "x"}
    assert other.comments["_fk_batch"] == "the batch"


def test_statistics_are_of_what_people_filter_by(tmp_path: Path) -> None:
    keys = ("_fk_batch", "_fk_pk_id", "_fk_fk_customer")
    assert result_of(spec_of(tmp_path)).skip_by == (*keys, "id", "amount", "day", "x", "name")
    named = spec_of(tmp_path, "settings: {statistics_columns: [name, day]}\n")
    assert result_of(named).skip_by == (*keys, "name", "day")
    none = result_of(spec_of(tmp_path, "settings: {statistics_columns: []}\n"))
    assert none.statistics == {"delta.dataSkippingStatsColumns": "`_fk_batch`,`_fk_pk_id`,`_fk_fk_customer`"}
    with pytest.raises(PipelineFileError, match="paid is BOOLEAN, of which tables have no statistics"):
        result_of(spec_of(tmp_path, "settings: {statistics_columns: [paid]}\n"))
    wide = ORDERS.replace("x DOUBLE", ", ".join(f"x{i} INT" for i in range(40))).replace(" x,", "")
    (tmp_path / "wide.yaml").write_text(wide.split("select:", maxsplit=1)[0])
    assert len(result_of(load_spec(tmp_path / "wide.yaml")).skip_by) == len(keys) + MOST_COLUMNS


def test_a_table_that_the_driver_creates_has_all_of_it(tmp_path: Path) -> None:
    result, path = result_of(spec_of(tmp_path)), str(tmp_path / "resolved_join")
    types = {
        "BIGINT": pa.int64(), "INT": pa.int32(), "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", "UTC"), "DECIMAL(10, 2)": pa.decimal128(10, 2), "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
    }  # fmt: skip
    columns = pa.schema([(name, types[dtype]) for name, dtype in result.columns])
    row = dict.fromkeys(result.names) | {"id": 7, "amount": Decimal("12.50"), "x": 1.5, "day": date(2024, 2, 29)}
    DriverWriter(DeltaLogs(), Sizes()).append(path, pa.Table.from_pylist([row], columns), result, "{}", columns)
    table = DeltaTable(path)
    assert table.metadata().description == result.description
    comments = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    assert {name: text for name, text in comments.items() if text} == result.comments
    [stats] = added(table)
    assert stats["minValues"] == stats["maxValues"] == {"id": 7, "amount": 12.5, "day": "2024-02-29"}
    assert "x" not in stats["nullCount"], "delta-rs leaves NaN out of its bounds"
