"""Cases through the command: right ones, wrong ones, errors; a foreign-key join, an aggregate, a query."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fk_pipeline as fk
from fk_pipeline.cli.main import app

pytestmark = pytest.mark.usefixtures("spark")


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(app, ["test", *map(str, args)])


JOIN = """\
- name: a late customer, a delete and a value of each type
  given:
    - left:
        - {order_id: 1, customer: ADA, amount: 12.5, placed: 2026-01-02 03:04}
        - {order_id: 2, customer: ada, amount: 1}
    - right: [{customer: ada, name: Ada, since: 2026-01-02}]
      left: [{delete: {order_id: 2}}, {order_id: 3, customer: nobody}]
  expect:
    - {order_id: 1, amount: 12.50, placed: 2026-01-02T03:04:00Z, name: Ada, since: 2026-01-02}
    - {order_id: 3, amount: null, name: null}
- name: a wrong step
  steps:
    - given: {left: [{order_id: 1, customer: ada}]}
      expect: [{order_id: 1, name: null}]
    - given: {right: [{customer: ada, name: Ada}], left: [{order_id: 2}]}
      expect: [{order_id: 1, name: Bob}, {order_id: 3}]
- name: bad records
  given: {left: [{order_id: x}, {order_id: 4}]}
  expect: [{order_id: 4}]
"""


def test_a_join_is_tested_in_copies_of_its_own(orders: Callable[..., Path], tmp_path: Path) -> None:
    file = orders(JOIN)
    done = invoke(file, "--any-order")
    assert done.exit_code == 1, done.output
    lines = [re.sub(r" +\d+\.\d s", " N s", line) for line in done.stdout.splitlines()]
    assert lines == [
        "ok N s  a late customer, a delete and a value of each type",
        "FAILED N s  a wrong step",
        "step 2",
        "           | order_id | name | differs in",
        "missing    | 3        |      |",
        "unexpected | 2        | NULL |",
        "expected   | 1        | Bob  |",
        "stored     | 1        | Ada  | name",
        "1 missing, 1 unexpected, 1 with other values; 0 as expected",
        "FAILED N s  bad records",
        "1 in the quarantine, expected 0",
        "input | batch | reason",
        "left  | 1     | column order_id: x is not BIGINT",
        "3 cases: 1 ok, 2 failed",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.tests.yaml", "orders.yaml"]


FAILING = """\
- name: it cannot be computed
  given: {input: [{n: 2147483647, who: ada}, {n: 1, who: ada}]}
  expect: []
- name: sums by who
  given: {input: [{n: 3, who: ada}, {n: 2, who: ada}, {n: 1, who: bob}]}
  expect_some: [{who: ada, total: 5, mean: 2.5}]
"""
SUMS = """\
name: sums
kind: aggregate
input: {path: landing/log, format: rows, schema: "n INT, who STRING", contents: events}
group_by: who
aggregates: [CAST(sum(n) AS INT) AS total, avg(n) AS mean]
"""


def test_an_error_fails_its_case_and_the_others_go_on(
    orders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what is kept goes with it
    done = invoke(orders(FAILING, SUMS), "--format", "json", "--keep")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert (told["passed"], told["failed"]) == (1, 1)
    failed, right = told["cases"]
    assert failed["error"].startswith("StageError: ")
    assert (right["name"], right["passed"]) == ("sums by who", True)
    assert (Path(right["folder"]) / "steps" / "sums.yaml").is_relative_to(tmp_path)
    assert (Path(right["folder"]) / "steps" / "sums.yaml").is_file()


QUERY = """\
name: recent
kind: query
inputs:
  o: {path: o, format: debezium, schema: "id INT, day DATE, customer STRING", key: id}
  c: {path: c, format: rows, schema: "customer STRING, name STRING", key: customer}
  today: {clock: 1 day}
query: |
  SELECT o.id, c.name FROM o JOIN c ON o.customer = c.customer, today WHERE o.day > today.day - INTERVAL 7 DAYS
"""
OF_QUERY = """\
- name: what is recent moves with the clock
  steps:
    - now: 2026-05-05
      given:
        o: [{id: 1, day: 2026-05-01, customer: a}, {id: 2, day: 2026-05-04, customer: a}]
        c: [{customer: a, name: Ada}]
      expect: [{id: 1, name: Ada}, {id: 2, name: Ada}]
    - now: 2026-05-09
      expect: [{id: 2}]
"""


def test_a_query_is_tested_with_its_inputs_and_its_clock(orders: Callable[..., Path]) -> None:
    shown: list[Any] = []
    results = fk.load(orders(OF_QUERY, QUERY)).test(progress=shown.append)
    assert [(result.passed, result.error, result.difference) for result in results] == [
        (True, "", results[0].difference)
    ]
    assert shown == results
