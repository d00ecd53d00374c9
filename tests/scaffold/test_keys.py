"""Which keys and foreign keys `init` guesses, and that it leaves open what a guess could lose rows by.

Each case is a small data set as it is found in the wild, read as JSON lines, CSV and Parquet.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.scaffold.make import make_folder
from fk_pipeline.scaffold.sample import read_sample
from fk_pipeline.scaffold.sampled import as_events

Rows = list[dict[str, Any]]
EVENTS = "events"


def rows(columns: str, *values: Sequence[Any]) -> Rows:
    return [dict(zip(columns.split(), row, strict=True)) for row in values]


def at(hour: int) -> str:
    return f"2024-05-01T{hour:02d}:00:00Z"


def day(number: int) -> str:
    return f"2024-05-{number:02d}"


CASES: dict[str, list[tuple[str, Rows]]] = {
    # A row that comes again as an update of itself.
    "payments": [
        ("payment_id", rows("payment_id amount", (1, 10.5), (2, 20.25), (1, 12.5))),
        ("payment_id", rows("amount method payment_id", (19.9, "card", 1), (5.5, "cash", 2), (19.9, "bank", 1))),
        ("id", rows("id order_id amount at", (1, 7, 10.5, at(1)), (2, 8, 20.25, at(2)), (1, 7, 12.5, at(3)))),
        ("", rows("id amount at", (1, 10.5, at(1)), (2, 20.25, at(2)), (1, 12.5, at(3)))),
        ("", rows("customer_id order_id amount", (1, 7, 10.5), (2, 8, 20.25), (1, 9, 12.5))),
        ("", rows("iban amount at", ("DE1", 10.5, at(1)), ("DE2", 20.25, at(2)), ("DE3", 12.5, at(3)))),
        ("", rows("payment_id amount", (1, 10.5), (2, 20.25), (None, 12.5))),
    ],
    "users": [
        ("id", rows("id name email", (1, "Ada", "a@x"), (2, "Bob", "b@x"))),
        ("user_id", rows("user_id name city", (1, "Ada", "Rome"), (2, "Bob", "Oslo"), (1, "Ada", "Oslo"))),
        ("user_id", rows("user_id name updated_at", (1, "a", at(1)), (1, "b", at(2)), (1, "c", at(3)))),
        ("user_id", rows("user_id name phone_number", (1, "Ada", "1"), (2, "Bob", "2"), (1, "Ada", "3"))),
        ("", rows("email name", ("a@x", "Ada"), ("b@x", "Bob"))),
    ],
    "accounts": [("account_no", rows("account_no balance", ("A1", 20.5), ("A2", 10.5), ("A1", 22.5)))],
    # An amount, a rate, a measure, a time and prose are no key.
    "rates": [
        ("", rows("rate currency", (1.1, "EUR"), (1.05, "USD"), (1.2, "EUR"))),
        ("", rows("currency rate", ("EUR", 110), ("USD", 100), ("CHF", 90))),
        (EVENTS, rows("currency since rate", ("EUR", day(1), 110), ("USD", day(1), 100), ("EUR", day(4), 90))),
        ("currency day", rows("currency day rate", *[(c, day(d), d / 8) for d in (1, 2, 3) for c in ("EUR", "USD")])),
    ],
    "logs": [
        (EVENTS, rows("ts level message", *[(at(h), "INFO", f"the server {h} has been started") for h in (1, 2, 3)])),
        ("", rows("id ts message", (7, at(1), "start"), (8, at(2), "stop"), (7, at(3), "work"))),
    ],
    "comments": [("", rows("comment author", ("well done", "ada"), ("thank you", "bob")))],
    # Readings of one thing are no updates of it.
    "sensors": [
        ("sensor_id at", rows("sensor_id at value", *[(s, at(h), h + s / 8) for h in (1, 2, 3) for s in (1, 2)])),
        ("", rows("sensor_id at value", (1, at(1), 20.5), (2, at(2), 20.25), (1, at(3), 20.75), (1, at(4), 21.5))),
    ],
    "readings": [
        (EVENTS, rows("ts value", (at(1), 20.5), (at(2), 20.25), (at(3), 20.75))),
        (EVENTS, rows("sensor ts value", ("a", at(1), 20.5), ("b", at(2), 20.25), ("a", at(3), 20.75))),
    ],
    # Neither are the lines of an order, whether or not their number is there.
    "orders": [
        ("OrderID", rows("OrderID CustomerID Freight", (1, "c1", 5.5), (2, "c2", 6.5), (3, "c2", 7.5))),
        ("order_id", rows("order_id customer_id updated_at", (1, "c1", at(1)), (2, "c2", at(1)), (1, "c2", at(2)))),
        ("order_id line_no", rows("order_id line_no sku", (1, 1, "A"), (1, 2, "B"), (2, 1, "A"))),
        ("order_id line_no", rows("order_id line_no sku", (1, 1, "A"), (2, 1, "B"), (3, 1, "A"))),
        ("", rows("order_id customer city sku", (1, "a", "Rome", "A"), (2, "b", "Oslo", "A"), (1, "a", "Rome", "B"))),
        ("", rows("order_id customer_id", (1, "c1"), (2, "c2"), (1, "c2"))),
    ],
    "order_lines": [
        ("order_id line_no", rows("order_id line_no product_id qty", (1, 1, 5, 2), (1, 2, 7, 1), (2, 1, 5, 1))),
        ("order_line_id", rows("order_line_id order_id line_no", (1, 1, 1), (2, 1, 2), (3, 2, 1))),
        ("order_id line_id", rows("order_id line_id qty", (1, 1, 2), (1, 2, 1))),
        ("", rows("order_id product_id qty", (1, 5, 2), (1, 7, 1), (2, 5, 1))),
    ],
    "order_items": [
        ("order_id item_id", rows("order_id item_id qty", (1, 5, 2), (1, 7, 1), (2, 5, 1))),
        ("", rows("order_id item_id qty", (1, 5, 2), (1, 7, 1), (2, 9, 1))),
    ],
    "order_status": [("", rows("order_id status at", (1, "new", at(1)), (1, "paid", at(2)), (2, "new", at(2))))],
    # Tables of what belongs to what.
    "user_roles": [("user_id role_id", rows("user_id role_id granted", (1, 1, at(1)), (1, 2, at(2)), (2, 1, at(3))))],
    "follows": [("follower_id followee_id", rows("follower_id followee_id", (1, 2), (1, 3), (2, 3)))],
    "visits": [("", rows("customer_id shop_id at", (1, 2, at(1)), (1, 3, at(2)), (2, 3, at(3))))],
    # Standard numbers and codes: unique in a sample says little.
    "products": [
        ("product_id", rows("product_id ean price", (1, "4006381333931", 1.5), (2, "4006381333948", 2.5))),
        ("", rows("ean name price", ("4006381333931", "Pen", 1.5), ("4006381333948", "Ink", 2.5))),
    ],
    "countries": [
        ("code", rows("code name population", ("DE", "Germany", 83), ("FR", "France", 68))),
        ("country_code", rows("country_code name", ("DE", "Germany"), ("FR", "France"))),
        ("", rows("alpha2 alpha3 name", ("DE", "DEU", "Germany"), ("FR", "FRA", "France"))),
    ],
    "prices": [("", rows("price ean", (110, "4006381333931"), (120, "4006381333948")))],
}  # fmt: skip


def written(file: Path, content: Rows) -> Path:
    """Writes rows in the format that the ending names."""
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(content), file)
    elif file.suffix == ".csv":
        with file.open("w", newline="") as out:
            table = csv.DictWriter(out, list(content[0]))
            table.writeheader()
            table.writerows(content)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in content))
    return file


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("table", CASES)
def test_a_key_is_guessed_where_names_or_values_tell_it_and_else_left_open(
    table: str, ending: str, tmp_path: Path
) -> None:
    for expected, content in CASES[table]:
        (found,) = read_sample(written(tmp_path / f"{table}.{ending}", content))
        found = as_events(found)
        guessed = EVENTS if "contents" in found.options else " ".join(found.key)
        assert guessed == expected, (found.key_doubt, content)
        assert found.has_key == bool(expected)


def test_the_folder_has_the_name_of_the_table_where_the_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "payments").mkdir()
    (found,) = read_sample(written(tmp_path / "payments/export-17.jsonl", CASES["payments"][0][1]))
    assert (found.table, found.key) == ("payments", ("payment_id",))


@pytest.mark.parametrize(("operations", "key"), [("insert insert update", ("order_id",)), ("insert insert insert", ())])
def test_what_the_source_calls_an_update_is_one(operations: str, key: tuple[str, ...], tmp_path: Path) -> None:
    content = CASES["orders"][-1][1]
    told = [{"op": op, **row} for op, row in zip(operations.split(), content, strict=True)]
    (found,) = read_sample(written(tmp_path / "orders.jsonl", told))
    assert found.key == key


def test_a_declared_key_with_a_part_that_cannot_be_stored_is_left_open(tmp_path: Path) -> None:
    value = {"after": {"order id": 1, "line": 2}, "op": "c", "source": {"table": "lines"}}
    line = {"topic": "lines", "key": {"order id": 1, "line": 2}, "value": value}
    (found,) = read_sample(written(tmp_path / "1.jsonl", [line]))
    assert (found.key, found.key_doubt) == ((), "the key of the records has order id, which is no column here")


SIDES: list[tuple[str, Rows, str, Rows, str, str]] = [
    # left table, its rows, right table, its rows, right key, foreign key
    (
        "orders", rows("order_id customer", (1, "ada"), (2, "bob"), (3, "ada")),
        "customers", rows("customer name since", ("ada", "Ada L.", day(1)), ("bob", "Bob", day(1))),
        "[customer]", "customer",
    ),
    (
        "payments", rows("payment_id currency", (1, "EUR"), (2, "USD"), (3, "EUR")),
        "rates", rows("currency rate", ("EUR", 1.1), ("USD", 1.05)),
        "[currency]", "currency",
    ),
    (
        "payments", rows("payment_id currency", (1, "EUR"), (2, "USD"), (3, "EUR")),
        "rates", rows("currency day rate", ("EUR", day(1), 1.1), ("USD", day(1), 1.05)),
        '"?"', '"?"',
    ),
    (
        "payments", rows("payment_id currency on", (1, "EUR", day(1)), (2, "USD", day(2)), (3, "EUR", day(1))),
        "rates", CASES["rates"][3][1],
        "[currency, day]", '[currency, "?"]',
    ),
    (
        "orders", rows("id quantity customer_count total", (1, 1, 3, 2), (2, 2, 2, 3), (3, 3, 1, 1)),
        "customers", rows("id name", (1, "a"), (2, "b"), (3, "c")),
        "[id]", '"?"',
    ),
    (
        "orders", rows("id product_id", (1, 1), (2, 2), (3, 3)),
        "customers", rows("id name", (1, "a"), (2, "b"), (3, "c")),
        "[id]", '"?"',
    ),
    (
        "orders", rows("id country_code", (1, "DE"), (2, "FR"), (3, "IT")),
        "currencies", rows("code name", ("EUR", "Euro"), ("USD", "Dollar")),
        "[code]", '"?"',
    ),
    (
        "flights", rows("id origin delay", (1, "EWR", 5), (2, "LGA", 0), (3, "JFK", 7)),
        "airports", rows("code name", ("EWR", "Newark"), ("LGA", "La Guardia"), ("JFK", "Kennedy")),
        "[code]", "origin",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", SIDES, ids=lambda case: f"{case[0]}-{case[2]}-{case[5]}")
def test_a_foreign_key_is_guessed_where_names_or_values_tell_it_and_else_left_open(
    case: tuple[str, Rows, str, Rows, str, str], tmp_path: Path
) -> None:
    left, of_left, right, of_right, key, foreign_key = case
    made = make_folder(
        tmp_path / "p", [written(tmp_path / f"{left}.jsonl", of_left), written(tmp_path / f"{right}.jsonl", of_right)]
    )
    lines = [line.split("  # ")[0].strip() for line in made.file.read_text().split("\nright:")[1].splitlines()]
    assert f"key: {key}" in lines
    assert f"\n  foreign_key: {foreign_key} " in made.file.read_text()
    assert [one for one in made.to_do if "left.foreign_key" in one] == [
        f"write in {made.file} which left column refers to a row of {right} (left.foreign_key)"
    ] * ('"?"' in foreign_key)


OPENING = [
    "plan", "run", "verify", "status", "rebuild", "compact", "quarantine", "show FILE resolved_join",
    "export FILE --to FILE.csv", "explain FILE --key 1", "impact FILE --right-key 1", "remove-batch FILE 0",
    "up FILE --home HOME",
]  # fmt: skip
"""The commands that open a pipeline file; FILE is the file."""


def test_every_command_refuses_a_pipeline_file_with_an_open_key_and_says_what_to_write(tmp_path: Path) -> None:
    rates = written(tmp_path / "rates.jsonl", CASES["rates"][0][1])
    payments = written(tmp_path / "payments.jsonl", CASES["payments"][5][1])
    said = CliRunner().invoke(
        app, ["init", str(tmp_path / "p"), "--from-sample", str(payments), "--from-sample", str(rates)]
    )
    assert said.exit_code == 0, said.output
    assert "payments.jsonl" in said.output
    file = tmp_path / "p" / "p.yaml"
    for what in ("left.key", "right.key", "left.foreign_key"):
        assert f"({what})" in said.output.split("Next:")[1].split("fk-pipeline plan")[0]
    numbers = {
        line.split(":")[0].strip(): number
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if "?" in line
    }
    for command in OPENING:
        name, *arguments = command.split() if " " in command else [command, "FILE"]
        places = {"FILE": str(file), "HOME": str(tmp_path / "home")}
        refused = CliRunner().invoke(app, [name, *(places.get(one, one) for one in arguments)])
        assert isinstance(refused.exception, PipelineFileError), (command, refused.output, refused.exception)
        assert refused.exception.exit_code == 2
        told = str(refused.exception)
        assert f"{file}:{numbers['foreign_key']}: left.foreign_key: '?' stands for" in told
        assert f"{file}:{numbers['key']}: right.key: '?' stands for" in told
        assert "'key: order_id', 'key: [order_id, line_no]'); there are rate, currency" in told
    assert not (tmp_path / "p" / "warehouse").exists()
