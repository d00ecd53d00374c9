"""`fk-pipeline init` takes samples for what they are meant to become, and what it writes runs as it is."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import UsageError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.project import pipeline_files, project_of

USERS = ("ada", "bob", "eve")


def at(minute: int, hour: int = 10) -> str:
    return f"2026-01-31T{hour:02}:{minute:02}:00Z"


def created(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A change event of Debezium: a new row with the key `id`."""
    value = {"before": None, "after": row, "source": {"table": table}, "op": "c"}
    return {"topic": f"s.d.{table}", "key": {"id": row["id"]}, "value": value}


ROWS: dict[str, Sequence[dict[str, Any]]] = {
    "orders": [
        {"order_id": i, "user_id": USERS[i % 3], "product_id": i % 2, "amount": i + 0.5, "ordered_at": at(i)}
        for i in range(9)
    ],
    "users": [{"user_id": user, "name": user.title(), "city_code": "zrh"} for user in USERS],
    "products": [{"product_id": i, "name": f"p{i}"} for i in range(2)],
    "cities": [{"city_code": "zrh", "city": "Zurich"}],
    "words": [{"code": "q", "text": "w"}],
    "members": [{"user_id": user, "name": user, "since": at(0, hour)} for user in USERS for hour in (8,)],
    "prices": [{"product_id": i, "price": 1.5 + h, "valid_from": at(0, h)} for i in range(2) for h in (8, 9, 11)],
    "rates": [{"product_id": i, "rate": 1.5, "since": f"2026-01-{day}"} for i in range(2) for day in (29, 30)],
    "views": [{"user_id": USERS[i % 3], "seen_at": at(i), "page": "/a" if i % 2 else "/b"} for i in range(9)],
    "buys": [{"buy_id": f"b{i}", "user_id": USERS[i % 3], "bought_at": at(i + 20)} for i in range(6)],
    "shown": [{"shown_id": i, "shown_at": at(i)} for i in range(6)],
    "clicks": [{"click_id": i, "shown_id": i // 2, "clicked_at": at(i)} for i in range(6)],
    "states": [{"state_id": i % 2, "user_id": USERS[i % 3], "set_at": at(i), "op": "update"} for i in range(6)],
    "logins": [created("logins", {"id": i, "user_id": i % 3, "login_at": at(i)}) for i in range(6)],
    "sales": [created("sales", {"id": i, "user_id": i % 3, "sold_at": at(i), "price": 5}) for i in range(6)],
}


def written(folder: Path, name: str) -> Path:
    """The sample of a table: JSON lines, CSV with `.csv` in the name, Parquet with `.parquet`."""
    table, _, ending = name.partition(".")
    file = folder / table / f"00000001.{ending or 'jsonl'}"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ROWS[table]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), file)
    elif ending == "csv":
        file.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def init(folder: Path, names: str, *options: str) -> Any:
    """The command with samples of these tables; returns its JSON, or the error."""
    samples = [part for name in names.split() for part in ("--from-sample", str(written(folder, name)))]
    ended = CliRunner().invoke(app, ["init", str(folder / "made"), *samples, *options, "--format", "json"])
    return ended.exception if ended.exception is not None else json.loads(ended.stdout)


CASES = [
    ("orders users", "", "foreign_key", "each row of orders with the latest row of users"),
    ("orders.csv users.parquet", "", "foreign_key", "each row of orders with the latest row of users"),
    ("users orders", "", "foreign_key", "orders refers to users, so it is the left side"),
    ("orders prices", "", "as_of", "valid_from tells since when a row of prices holds, and keys come again"),
    ("orders.csv prices.csv", "", "as_of", "each row of orders with the row of prices that held at its time"),
    ("orders rates", "", "as_of", "since tells since when a row of rates holds"),
    ("orders prices", "--kind foreign_key", "foreign_key", "the latest row of prices"),
    ("orders members", "--kind as_of --key members=user_id", "as_of", "since tells since when a row of members holds"),
    ("views buys", "", "window", "both have events with times, and neither refers to the key of the other"),
    ("views.csv buys.csv", "", "window", "views and buys that happened near each other in time"),
    ("logins sales", "", "window", "logins and sales that happened near each other in time"),
    ("shown clicks", "", "foreign_key", "clicks refers to shown, so it is the left side"),
    ("shown clicks", "--kind window", "window", "shown and clicks that happened near each other in time"),
    ("orders", "", "table", "--kind aggregate makes the rows of orders, counted and added up per group"),
    ("orders.parquet", "--kind aggregate", "aggregate", "counted and added up per group"),
    ("orders users products cities", "", "query", "kind  query, of orders, users, products, cities"),
]


@pytest.mark.parametrize(("names", "options", "kind", "fact"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_what_samples_are_meant_to_become_is_seen_and_said(
    tmp_path: Path, names: str, options: str, kind: str, fact: str
) -> None:
    said = init(tmp_path, names, *options.split())
    assert said["kind"] == kind
    assert fact in "\n".join(said["found"])
    assert not said["to_do"], "it runs as it is"
    file = Path(said["pipeline"])
    spec = load_spec(file)
    assert spec.kind == kind.replace("as_of", "foreign_key")
    assert file.with_suffix(".tests.yaml").exists()
    outputs = [output.name for output in spec.outputs]
    sql = [output.sql.split(" AS ")[0] for output in spec.outputs]
    assert len({*outputs}) == len(outputs)
    assert len({*sql}) == len(sql)


def test_a_table_beside_itself_does_not_refer_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "employees.jsonl"
    rows = ({"employee_id": i, "manager_id": max(0, i - 1), "name": f"n{i}"} for i in range(9))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--from-sample", str(file), "--from-sample", str(file), "--format", "json"]
    said = json.loads(CliRunner().invoke(app, ["init", str(tmp_path / "made"), *options]).stdout)
    assert load_spec(said["pipeline"]).left.foreign_key == ("manager_id",)


def test_a_table_whose_rows_change_is_no_stream(tmp_path: Path) -> None:
    said = init(tmp_path, "views states")
    assert said["kind"] == "foreign_key"
    assert "left.foreign_key" in said["to_do"][-1]


def test_columns_of_the_written_file_are_those_that_the_samples_tell(tmp_path: Path) -> None:
    as_of = load_spec(init(tmp_path / "1", "orders prices")["pipeline"])
    assert (as_of.as_of, as_of.right.valid_from, as_of.right.key) == ("ordered_at", "valid_from", ("product_id",))
    assert [output.name for output in as_of.outputs][-3:] == ["ordered_at", "price", "valid_from"]
    days = load_spec(init(tmp_path / "2", "orders rates")["pipeline"])
    assert (days.as_of, days.right.valid_from) == ("ordered_at", "CAST(since AS TIMESTAMP)")
    near = load_spec(init(tmp_path / "3", "views buys")["pipeline"])
    assert (near.left.on, near.right.time, near.left.contents) == (("user_id",), "bought_at", "events")
    assert [output.name for output in near.outputs] == ["event", "user_id", "seen_at", "page", "buy_id", "bought_at"]
    groups = load_spec(init(tmp_path / "4", "orders", "--kind", "aggregate")["pipeline"])
    assert (groups.group_by, groups.aggregates) == (
        ("product_id",),
        ("count(*) AS orders", "sum(amount) AS total_amount"),
    )
    query = load_spec(init(tmp_path / "5", "products cities users orders")["pipeline"])
    assert query.key == ("order_id",)
    assert [output.name for output in query.outputs] == [
        "order_id", "user_id", "product_id", "amount", "ordered_at", "name", "city_code", "product_name", "city",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "options", "error"),
    [
        ("orders users words", "", "nothing tells how words belongs to orders, users"),
        ("orders", "--kind window", "--kind window: the samples do not give it\n  it reads two tables, and orders is"),
        ("orders users", "--kind aggregate", "it reads one table, and these are orders and users"),
        ("orders users products", "--kind window", "--kind window reads at most two tables"),
        ("orders users", "--kind as_of", "it needs a time in orders, and a column such as valid_from in users"),
        ("orders users", "--key user=name", "no sample is of 'user'; they are of orders, users; did you mean 'users'?"),
        ("orders users", "--key users=nam", "users has no column 'nam'; it has user_id, name, city_code; did you mean"),
        ("", "--kind as_of", "--kind as_of needs samples"),
        ("", "--key a=b", "--key is of a table of which there is no sample"),
    ],
)
def test_what_samples_cannot_become_is_refused(tmp_path: Path, names: str, options: str, error: str) -> None:
    refused = init(tmp_path, names, *options.split())
    assert isinstance(refused, UsageError)
    assert error in str(refused)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["foreign_key", "window", "aggregate", "table", "query"])
def test_without_samples_each_kind_has_an_example(tmp_path: Path, kind: str) -> None:
    said = init(tmp_path, "", "--kind", kind)
    assert load_spec(said["pipeline"]).kind == said["kind"] == kind
    assert "made.tests.yaml" in [Path(file).name for file in said["files"]]


@pytest.mark.parametrize(("answer", "kind"), [("\n", "kind: table"), ("2\n", "kind: aggregate")])
def test_a_terminal_is_asked_once_what_is_meant(tmp_path: Path, answer: str, kind: str) -> None:
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "fk_pipeline.cli.main", "init", str(tmp_path / "made"), "--from-sample"]
    os.write(screen, answer.encode())
    ended = subprocess.run(
        [*command, written(tmp_path, "orders")], stdin=terminal, stdout=terminal, timeout=120, check=False
    )
    os.close(terminal)
    shown = os.read(screen, 100_000).decode()
    os.close(screen)
    assert ended.returncode == 0
    assert shown.count("What is meant?") == 1
    assert "2  the rows of orders, counted and added up per group (--kind aggregate)" in shown
    assert kind in (tmp_path / "made" / "made.yaml").read_text()


RUNS = ["orders users", "orders prices", "views buys", "orders", "orders --kind aggregate", "orders users products"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("given", RUNS)
def test_what_init_writes_runs_and_is_right_and_passes_its_case(
    tmp_path: Path, spark: SparkSession, given: str
) -> None:
    names, _, option = given.partition(" --")
    file = Path(init(tmp_path, names, *(f"--{option}".split() if option else ()))["pipeline"])
    for name in names.split():
        shutil.copy(tmp_path / name / "00000001.jsonl", file.parent / "landing" / name)
    for each in project_of(pipeline_files([file.parent])).files:
        pipeline = Pipeline(load_spec(each), spark)
        pipeline.run()
        report = pipeline.verify()
        assert (report.ok, report.due, report.quarantined_lines) == (True, 0, 0)
        assert report.rows > 0
    (case,) = Pipeline(load_spec(file), spark).test()
    assert case.passed, (case.error, case.difference)
