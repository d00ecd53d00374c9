"""A pipeline file, and a file of cases beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ORDERS = """\
name: orders
join: left
left:
  path: landing/orders
  format: debezium
  schema: "order_id BIGINT, customer STRING, amount DECIMAL(10,2), placed TIMESTAMP"
  key: order_id
  foreign_key: lower(customer)
right:
  path: landing/customers
  format: csv
  schema: "customer STRING, name STRING, since DATE"
  key: customer
  sensitive: name
select: [order_id, amount, placed, name, since]
"""


@pytest.fixture
def orders(tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that writes a pipeline file, and cases beside it; it returns the pipeline file."""

    def write(cases: str | None = None, pipeline: str = ORDERS) -> Path:
        file = tmp_path / "orders.yaml"
        file.write_text(pipeline)
        if cases is not None:
            (tmp_path / "orders.tests.yaml").write_text(cases)
        return file

    return write
