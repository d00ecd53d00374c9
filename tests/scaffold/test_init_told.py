"""`init`: broken lines, deletes as data, amounts and nested values, through the command."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.deletes import marked_deleted
from fk_pipeline.scaffold.nested import decimal_of, nested
from fk_pipeline.scaffold.types import Inferred, of_values
from fk_pipeline.spec import load_spec

ORDERS = [
    '{"id": 1, "customer_id": "a", "amount": 12.5, "deleted_at": null, "lines": [{"sku": "x", "n": 2, "price": 1.10}]}',
    '{"id": 2, "customer_id": "b", "amount": 1000.05, "deleted_at": "2024-01-31T00:00:00Z", "lines": []}',
    "{broken",
    "[1]",
    "",
    '{"id": 3, "customer_id": "a", "amount": 7, "lines": null, "address": {"city": "Z", "geo": [1.5]}}',
    '"text"',
    b"\xe4".decode("latin-1"),
]
CUSTOMERS = "id,name,is_deleted\na,Ada,N\nb,Bob,Y\nc,too,many,fields\nd\n"


def samples(folder: Path) -> tuple[Path, Path]:
    orders, customers = folder / "orders-1.jsonl", folder / "customers-1.csv"
    orders.write_bytes(b"\n".join(line.encode("latin-1") for line in ORDERS) + b"\n")
    customers.write_text(CUSTOMERS)
    return orders, customers


def init(folder: Path, *files: Path) -> Any:
    options = [part for file in files for part in ("--from-sample", str(file))]
    return CliRunner().invoke(app, ["init", str(folder), *options, "--format", "json"])


def test_broken_lines_are_counted_and_deletes_amounts_and_nested_values_are_offered(tmp_path: Path) -> None:
    made = init(tmp_path / "shop", *samples(tmp_path))
    assert made.exit_code == 0, made.exception
    said = json.loads(made.stdout)
    file = Path(said["pipeline"])
    told = "\n".join(said["found"])
    assert (
        "orders: 4 of 7 lines cannot be read and were skipped; a run puts them into the quarantine. The first: " in told
    )
    assert f"{tmp_path}/orders-1.jsonl:3: a line is no JSON" in told
    assert "customers: 2 of 4 rows cannot be read and were skipped" in told
    assert "The first: not a row of 3 fields" in told
    spec = load_spec(file)
    assert {c.name: c.type for c in spec.left.columns} == {
        "id": "BIGINT",
        "customer_id": "STRING",
        "amount": "DECIMAL(18, 2)",
        "deleted_at": "TIMESTAMP",
        "lines": "ARRAY<STRUCT<`sku`: STRING, `n`: BIGINT, `price`: DECIMAL(18, 2)>>",
        "address": "STRUCT<`city`: STRING, `geo`: ARRAY<DECIMAL(18, 1)>>",
    }
    assert (spec.left.delete_when, spec.right.delete_when) == ("deleted_at IS NOT NULL", "is_deleted = 'Y'")
    assert not {"deleted_at", "is_deleted"} & {one.name for one in spec.outputs}
    text = file.read_text()
    assert "# guessed: its name: rows on which it is true are deleted; FALSE if it says no such thing" in text
    assert "left.delete_when: deleted_at IS NOT NULL; its name" in "\n".join(said["guessed"])
    assert "left.amount: DECIMAL(18,2); at most 2 digits after the point; DOUBLE if it is measured" in "\n".join(
        said["guessed"]
    )


def test_a_sample_without_a_good_line_is_refused_with_the_first(tmp_path: Path) -> None:
    file = tmp_path / "orders-1.jsonl"
    file.write_text('[{"id": 1},\n {"id": 2}]\n')
    refused = init(tmp_path / "shop", file)
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.exit_code == 2
    assert str(refused.exception).startswith(f"{file}:1: a line is no JSON")
    assert "Fix: one JSON value per line: jq -c . writes them so" in str(refused.exception)
    assert not (tmp_path / "shop").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_quarantines_as_many_lines_as_init_skipped(tmp_path: Path, spark: Any) -> None:
    orders, customers = samples(tmp_path)
    for file, side in ((orders, "left"), (customers, "right")):
        (tmp_path / side).mkdir()
        file.rename(tmp_path / side / file.name)
    made = init(tmp_path / "shop", tmp_path / "left", tmp_path / "right")
    assert made.exit_code == 0, made.exception
    file = Path(json.loads(made.stdout)["pipeline"])
    text = file.read_text().replace("path: landing/orders", f"path: {tmp_path}/left")
    file.write_text(text.replace("path: landing/customers", f"path: {tmp_path}/right"))
    done = CliRunner().invoke(app, ["run", str(file), "--format", "json"])
    assert done.exit_code == 0, done.exception
    counts = {one["stage"]: one["counts"]["1"] for one in json.loads(done.stdout)}
    assert counts["left_changelog"]["quarantined"] == 4
    assert counts["right_table"]["quarantined"] == 2
    assert (counts["left_changelog"]["tombstones"], counts["right_table"]["tombstones"]) == (1, 1)
    out = tmp_path / "out.jsonl"
    assert CliRunner().invoke(app, ["export", str(file), "--to", str(out)]).exit_code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["id"], row["amount"], row["name"]) for row in rows] == [(1, "12.50", "Ada"), (3, "7.00", "Ada")]
    assert rows[0]["lines"] == [{"sku": "x", "n": 2, "price": 1.1}]
    assert rows[1]["address"] == {"city": "Z", "geo": [1.5]}


@pytest.mark.parametrize(
    ("name", "kind", "values", "condition"),
    [
        ("is_deleted", "BOOLEAN", [True], "is_deleted"),
        ("_delete", "BIGINT", [0, 1], "_delete = 1"),
        ("deleted", "BIGINT", [0, 7], None),
        ("deleted", "STRING", ["false", "false"], "deleted = 'true'"),
        ("deleted", "STRING", ["N"], "deleted = 'Y'"),
        ("deleted", "STRING", ["", "X", "D"], "deleted IN ('D', 'X')"),
        ("deleted", "STRING", ["maybe"], None),
        ("deletedAt", "TIMESTAMP", ["2024-01-31"], "deletedAt IS NOT NULL"),
        ("deleted_at", "STRING", [], "deleted_at IS NOT NULL"),
        ("deleted_at", "BIGINT", [0, 17], "deleted_at > 0"),
        ("undeleted", "BOOLEAN", [True], None),
        ("delete_reason", "STRING", ["x"], None),
    ],
)
def test_a_field_that_marks_deletes_is_known_by_name_and_values(
    name: str, kind: str, values: list[Any], condition: str | None
) -> None:
    assert marked_deleted(name, name, Inferred(kind), values) == condition


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('[{"a": 1}, {"a": 2, "b": null}]', "STRUCT<`a`: BIGINT, `b`: STRING>"),
        ("[[1, 2.50], [], [3]]", "ARRAY<DECIMAL(18,2)>"),
        ('[{"a": {"b": [true]}}]', "STRUCT<`a`: STRUCT<`b`: ARRAY<BOOLEAN>>>"),
        ('[{"a": 1}, [1]]', None),
        ('[{"a": 1}, {"a": "x"}]', None),
        ('[{"a": 1, "A": 2}]', None),
        ('[{"a b": 1}]', None),
        ("[{}]", None),
        (f"[{'[' * 20}{']' * 20}]", None),
        (json.dumps([{f"k{i}": i for i in range(101)}]), None),
        ("[[18446744073709551616]]", "ARRAY<DECIMAL(38,0)>"),
    ],
)
def test_nested_values_have_the_type_that_reads_them_all(text: str, kind: str | None) -> None:
    assert nested(json.loads(text, parse_float=Decimal)) == kind


@pytest.mark.parametrize(
    ("values", "kind", "doubt"),
    [
        (["1.10", "2.345", "7"], "DECIMAL(18,3)", "at most 3 digits after the point; DOUBLE if it is measured"),
        (["12345678901234567.89"], "DECIMAL(23,2)", "at most 2 digits"),
        (
            ["0.12345678"],
            "DOUBLE",
            "up to 8 digits after the point; it keeps 15 to 17 digits: DECIMAL(p,s) if it is an",
        ),
        (["1e30", "2.5"], "DOUBLE", "numbers with an exponent; it keeps 15 to 17 digits"),
        ([f"{'9' * 40}.5"], "DOUBLE", "up to 1 digit after the point; it keeps 15 to 17 digits"),
    ],
)
def test_fractions_are_exact_where_they_can_be_and_a_double_is_told(values: list[str], kind: str, doubt: str) -> None:
    found = of_values("amount", values, is_text=True, is_debezium=False)
    assert found.type == kind
    assert found.doubt.startswith(doubt)


def test_amounts_of_which_some_are_in_quotes_are_amounts() -> None:
    assert of_values("a", [Decimal("1.5"), "2.25", 3], is_text=False, is_debezium=False).type == "DECIMAL(18,2)"
    assert decimal_of([Decimal("1E+3"), Decimal("0.05")]) == "DECIMAL(18,2)"
