"""`fk-pipeline init`: what a sample says gets into the pipeline file, what it does not say is marked as a guess."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, UsageError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.scaffold.make import make_folder
from fk_pipeline.scaffold.meanings import Meant
from fk_pipeline.scaffold.sample import read_sample
from fk_pipeline.scaffold.sampled import Sample
from fk_pipeline.scaffold.types import Inferred, of_connect, of_values
from fk_pipeline.scaffold.write import Made
from fk_pipeline.spec import load_spec

DEMO = Path(__file__).parents[2] / "fk_pipeline/demo/data/landing"


def lines(file: Path, *values: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return file


def sample(file: Path) -> Sample:
    (found,) = read_sample(file)
    return found


def types(found: Sample) -> dict[str, str]:
    return {column.name: column.inferred.type for column in found.columns}


def event(table: str, key: dict[str, Any], row: dict[str, Any] | None, op: str = "r") -> dict[str, Any]:
    value = {"before": None, "after": row, "source": {"table": table}, "op": op}
    return {"topic": f"srv.db.{table}", "key": key, "value": value, "headers": {}}


# What a file is, and what its columns are.


def test_debezium_with_its_schema_says_types_and_key(tmp_path: Path) -> None:
    fields = [
        {"field": "OrderID", "type": "int32"},
        {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"field": "placed", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
    ]  # fmt: skip
    row = {"OrderID": 7, "price": "BNI=", "placed": 1_700_000_000_000_000, "day": 19_000, "tags": ["a"]}
    value = {
        "schema": {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]},
        "payload": {"before": None, "after": row, "op": "c", "source": {"table": "Orders"}},
    }
    key = {"schema": {"type": "struct"}, "payload": {"OrderID": 7}}
    found = sample(lines(tmp_path / "1.jsonl", {"topic": "s.dbo.Orders", "key": key, "value": value}))
    assert (found.format, found.table, found.key, found.key_doubt) == ("debezium", "Orders", ("OrderID",), "")
    assert types(found) == {
        "OrderID": "INT",
        "price": "DECIMAL(10,2)",
        "placed": "TIMESTAMP",
        "day": "DATE",
        "tags": "ARRAY<STRING>",
    }
    assert found.column("price").inferred.logical == "decimal_bytes"
    assert found.column("placed").inferred.logical == "epoch_micros"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"before": None, "after": {"id": 1, "fk": "a"}, "op": "c"}, "change events"),
        ({"id": 1, "fk": "a", "__op": "c", "__deleted": "false"}, "change events of flattened rows"),
        (event("t", {"id": 1}, {"id": 1, "fk": "a"}), "exported records"),
        ({"key": '{"id": 1}', "value": '{"after": {"id": 1, "fk": "a"}, "op": "c"}'}, "exported records"),
    ],
)
def test_every_shape_of_debezium_is_known(value: dict[str, Any], shape: str, tmp_path: Path) -> None:
    found = sample(lines(tmp_path / "t" / "00000001.jsonl", value, None))
    assert (found.format, found.shape, found.table) == ("debezium", shape, "t")
    assert types(found) == {"id": "BIGINT", "fk": "STRING"}
    assert found.key == ("id",)


def test_deletes_tombstones_and_markers_bring_no_columns(tmp_path: Path) -> None:
    found = sample(
        lines(
            tmp_path / "1.jsonl",
            event("t", {"id": 1}, None, "d"),
            {"topic": "srv.db.t", "key": {"id": 1}, "value": None},
            {"status": "BEGIN", "id": "9", "event_count": None},
            {"op": "m", "message": {}},
            event("t", {"id": 2}, {"id": 2}),
        )
    )
    assert (found.records, types(found)) == (1, {"id": "BIGINT"})


def test_rows_of_maxwell_name_table_and_key(tmp_path: Path) -> None:
    row = {"type": "insert", "database": "d", "table": "cities", "data": {"zip": "01", "name": "x"}}
    found = sample(lines(tmp_path / "1.jsonl", row | {"primary_key_columns": ["zip"]}))
    assert (found.format, found.table, found.key, found.key_doubt) == ("maxwell", "cities", ("zip",), "")


def test_plain_rows_with_an_operation(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "orders.jsonl",
        {"op": "insert", "id": 1, "paid": True, "at": "2024-05-01T10:00:00Z"},
        {"op": "delete", "id": 1},
    )
    found = sample(file)
    assert (found.format, found.table, found.options) == ("rows", "orders", {"op_column": "op"})
    assert types(found) == {"id": "BIGINT", "paid": "BOOLEAN", "at": "TIMESTAMP"}


def test_csv_with_a_header_and_its_delimiter(tmp_path: Path) -> None:
    file = tmp_path / "customers_7.csv.gz"
    file.write_bytes(gzip.compress(b"code;zip;limit;since\nA;01234;10.50;2020-01-01\nB;;3.00;\n"))
    found = sample(file)
    assert (found.format, found.table, found.options) == ("csv", "customers", {"csv": {"delimiter": ";"}})
    assert types(found) == {"code": "STRING", "zip": "STRING", "limit": "DECIMAL(18,2)", "since": "DATE"}
    assert found.key == ("code",)
    assert found.key_doubt == "its name; no value comes twice in 2 rows"


def test_csv_of_dms_does_not_name_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "20240501-101500000.csv"
    file.write_text("I,1,a\nU,1,b\n")
    found = sample(file)
    assert (found.format, types(found)) == ("dms", {"column_1": "BIGINT", "column_2": "STRING"})
    assert found.notes
    assert found.options == {}, "DMS has no numbers of batches in its names"


def test_parquet_has_its_own_types(tmp_path: Path) -> None:
    moment = pa.timestamp("us", tz="UTC")
    table = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([0], moment), "p": pa.array([1.5], pa.float32())})
    pq.write_table(table, tmp_path / "7.parquet")
    found = sample(tmp_path / "7.parquet")
    assert (found.format, types(found)) == ("parquet", {"id": "INT", "at": "TIMESTAMP", "p": "FLOAT"})


def test_a_delta_table_is_known_by_its_log(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "orders", pa.table({"id": [1, 2], "_fk_batch": [0, 0]}))
    found = sample(tmp_path / "orders")
    assert (found.format, found.table, types(found)) == ("delta", "orders", {"id": "BIGINT"})
    assert "no change feed" in found.notes[0]


INEXACT = "it keeps 15 to 17 digits: DECIMAL(p,s) if it is an exact amount"


@pytest.mark.parametrize(
    ("values", "inferred"),
    [
        ([1, 2], Inferred("BIGINT")),
        ([2**63], Inferred("DECIMAL(38,0)")),
        (["2024-05-01"], Inferred("DATE")),
        (["2024-05-01 10:00"], Inferred("TIMESTAMP")),
        (["01", "2"], Inferred("STRING")),
        ([True], Inferred("BOOLEAN")),
        ([1, "NaN"], Inferred("DOUBLE", doubt=f"NaN or Infinity is among the values; {INEXACT}")),
        ([], Inferred("STRING", doubt="only nulls in the sample")),
        ([1, "x"], Inferred("STRING", doubt="values of several types")),
        ([{"a": 1}, "x"], Inferred("STRING", doubt="the text of JSON whose values have no type in common")),
        ([{"scale": 2, "value": "AQ=="}], Inferred("DECIMAL(38,2)", doubt="the most digits in the sample")),
    ],
)
def test_types_are_those_that_read_every_value(values: Sequence[Any], inferred: Inferred) -> None:
    assert of_values("c", values, is_text=False, is_debezium=True) == inferred


def test_numbers_are_times_only_where_the_name_says_so_too() -> None:
    micros = [1_700_000_000_000_000]
    found = of_values("created_at", micros, is_text=False, is_debezium=True)
    assert (found.type, found.logical) == ("TIMESTAMP", "epoch_micros")
    assert found.doubt
    assert of_values("account", micros, is_text=False, is_debezium=True) == Inferred("BIGINT")
    assert of_values("birth_date", [7305], is_text=False, is_debezium=True).type == "DATE"


def test_bytes_of_a_numeric_are_told() -> None:
    assert "decimal_bytes" in of_values("price", ["BNI=", "AQ=="], is_text=False, is_debezium=True).doubt
    assert not of_values("name", ["Bob", "Anna"], is_text=False, is_debezium=True).doubt


def test_a_decimal_wider_than_sparks_is_told() -> None:
    field = {
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "4", "connect.decimal.precision": "60"},
    }
    assert of_connect(field | {"type": "bytes"}).type == "DECIMAL(38,4)"
    assert "60" in of_connect(field).doubt


@pytest.mark.parametrize(
    ("names", "batch_by"),
    [
        (["00000001.jsonl", "00000002.jsonl"], None),
        (["orders.jsonl"], None),
        (["server1.shop.orders+0+0000000000.json", "server1.shop.orders+0+0000000500.json"], None),
        (["orders-2024-05-01.jsonl"], "arrival"),
        (["20240501-1015.jsonl", "20240501-1030.jsonl"], "arrival"),
        (["orders-20240501.jsonl", "orders-20240502.jsonl"], None),
        (["o+0+20240501101500.jsonl"], "arrival"),
        (["part-00000-1.jsonl", "part-00001-1.jsonl"], "arrival"),
    ],
)
def test_numbers_that_are_no_batches_are_seen(names: list[str], batch_by: str | None, tmp_path: Path) -> None:
    for name in names:
        lines(tmp_path / name, {"id": 1})
    assert sample(tmp_path).options.get("batch_by") == batch_by


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '[{"id": 1}]\n', "not a JSON object"),
        ("a.jsonl", '{\n "id": 1\n}\n', "no JSON"),
        ("a.jsonl", '{"key": {"id": 1}, "value": {"id": 1}}\n', "does not say what happened"),
        ("a.jsonl", '{"op": "c", "after": "{\\"_id\\": 1}"}\n', "MongoDB"),
        ("a.jsonl", "null\n", "no row"),
        ("a.txt", "x\n", "ends in nothing that is read"),
        ("a.csv", "", "no row"),
        ("a.parquet", "no", "no Parquet"),
    ],
)
def test_a_sample_that_cannot_be_read_is_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        read_sample(tmp_path / name)


def test_columns_that_no_table_can_have_are_left_out_and_told(tmp_path: Path) -> None:
    found = sample(lines(tmp_path / "t.jsonl", {"id": 1, "left": 2, "a b": 3, "ID": 4, "größe": 5}))
    assert types(found) == {"id": "BIGINT", "`größe`": "BIGINT"}
    assert len(found.notes) == 3


# The pipeline file.


def made_of(tmp_path: Path, left: Sequence[Any], right: Sequence[Any], names: tuple[str, str]) -> Made:
    files = [
        lines(tmp_path / name / "00000001.jsonl", *values) for name, values in zip(names, (left, right), strict=True)
    ]
    return make_folder(tmp_path / "Shop 1", files)


@pytest.mark.parametrize(
    ("names", "left", "right", "foreign_key"),
    [
        (("orders", "customers"), {"id": 1, "customer_id": 7}, {"id": 7}, "customer_id"),
        (("orders", "customers"), {"id": 1, "customer_id": "7"}, {"id": 7}, "TRY_CAST(customer_id AS BIGINT)"),
        (("flights", "planes"), {"id": 1, "tailnum": "N1", "dest": "N1"}, {"tailnum": "N1"}, "tailnum"),
        (("films", "languages"), {"film_id": 1, "title": "M", "spoken": "de"}, {"code": "de", "name": "x"}, "spoken"),
        (("addresses", "cities"), {"id": 1, "city_id": 3}, {"city_id": 3, "name": "x"}, "city_id"),
    ],
)
def test_the_foreign_key_is_proposed_by_name_and_values(
    names: tuple[str, str], left: dict[str, Any], right: dict[str, Any], foreign_key: str, tmp_path: Path
) -> None:
    key = next(iter(left))
    made = made_of(tmp_path, [left | {key: i} for i in range(4)], [right], names)
    assert made.spec.left.foreign_key == (foreign_key,)
    assert f"foreign_key: {foreign_key} " in made.spec.file.read_text()
    assert any(doubt.startswith("left.foreign_key: ") for doubt in made.doubts)


def test_where_nothing_tells_the_foreign_key_the_file_says_so(tmp_path: Path) -> None:
    made = made_of(tmp_path, [{"id": 1, "x": "p"}], [{"code": "q"}], ("a", "b"))
    assert 'foreign_key: "?"                 # nothing tells which left column refers to' in made.file.read_text()
    with pytest.raises(PipelineFileError, match=r"shop_1.yaml:\d+: left.foreign_key: '\?' .* there are id, x"):
        assert made.spec


def test_names_that_both_sides_have_are_told_apart(tmp_path: Path) -> None:
    made = made_of(
        tmp_path,
        [{"id": 1, "name": "o", "customer_name": "x", "customer_id": 7}],
        [{"id": 7, "name": "c"}],
        ("orders", "customers"),
    )
    assert [output.name for output in made.spec.outputs] == [
        "id", "name", "customer_name", "customer_id", "right_name",
    ]  # fmt: skip


def test_the_folder_is_what_the_contract_says(tmp_path: Path) -> None:
    made = made_of(tmp_path, [{"id": 1, "customer_id": 7}], [{"id": 7}], ("orders", "customers"))
    folder = tmp_path / "Shop 1"
    assert made.spec.name == "shop_1"
    assert [str(one.relative_to(folder)) for one in made.written] == [
        "shop_1.yaml", "shop_1.tests.yaml", "landing/orders", "landing/customers", "dagster.yaml", "README.md",
    ]  # fmt: skip
    assert all(one.exists() for one in made.written)
    assert "fk-pipeline run shop_1.yaml" in (folder / "README.md").read_text()
    with pytest.raises(UsageError, match="there already"):
        make_folder(folder, [])


def test_without_a_sample_the_file_is_an_example_that_loads(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "shop", [])
    assert load_spec(made.spec.file).left.foreign_key == ("customer_id",)
    assert made.doubts == ()


def test_rows_that_no_values_tell_apart_are_events(tmp_path: Path) -> None:
    click = {"customer": "ada", "page": "/home"}
    made = made_of(
        tmp_path, [click, click, click | {"customer": "bob"}], [{"customer": "ada"}], ("clicks", "customers")
    )
    assert (made.spec.left.contents, made.spec.left.key) == ("events", ("event",))
    assert (made.spec.left.foreign_key, made.spec.outputs[0].name) == (("customer",), "event")
    (doubt,) = [one for one in made.doubts if "contents" in one]
    assert doubt.startswith("left.contents: events; no column has the name of a key")
    right = made_of(tmp_path / "2", [click, click], [{"customer": "ada", "event": "x"}], ("clicks", "customers"))
    assert [one.name for one in right.spec.outputs] == [
        "event",
        "customer",
        "page",
        "right_event",
    ]


@pytest.mark.parametrize("more", [{"op": "insert"}, {"deleted": False}, {"event": "click"}])
def test_rows_that_may_be_changes_have_a_key_to_write(tmp_path: Path, more: dict[str, Any]) -> None:
    row = {"customer": "ada", "page": "/home", **more}
    made = made_of(tmp_path, [row, row, row], [{"customer": "ada"}], ("clicks", "customers"))
    assert 'key: "?"' in made.file.read_text()
    assert "contents:" not in made.file.read_text()


def test_with_one_sample_the_right_side_is_a_guess(tmp_path: Path) -> None:
    file = lines(tmp_path / "orders" / "1.jsonl", {"id": 1, "customer_id": 7})
    made = make_folder(tmp_path / "shop", [file], kind=Meant.FOREIGN_KEY)
    assert (made.spec.right.path, made.spec.right.key) == ("landing/customers", ("customer_id",))
    assert "guessed: no sample of it" in made.spec.file.read_text()


def test_one_file_with_lines_of_two_tables_makes_both_sides(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "shop-000001.jsonl",
        event("customers", {"id": 7}, {"id": 7, "name": "x"}),
        event("orders", {"id": 1}, {"id": 1, "customer_id": 7}),
    )
    made = make_folder(tmp_path / "shop", [file])
    assert (made.spec.left.table, made.spec.right.table) == ("orders", "customers")
    assert made.spec.left.path == made.spec.right.path


def test_in_place_reads_where_the_samples_lie(tmp_path: Path) -> None:
    files = [lines(tmp_path / name / "1.jsonl", {"id": 1}) for name in ("a", "b")]
    made = make_folder(tmp_path / "shop", files, in_place=True)
    assert made.paths == ("../a", "../b")
    assert "path: ../a" in made.file.read_text()
    assert not (tmp_path / "shop" / "landing").exists()


def test_the_left_side_is_the_one_that_refers_to_the_other(tmp_path: Path) -> None:
    orders, customers = [{"id": i, "customer_id": 7} for i in (1, 2)], [{"id": 7, "name": "x"}]
    made = made_of(tmp_path, customers, orders, ("customers", "orders"))
    assert (made.spec.left.path, made.spec.right.path) == ("landing/orders", "landing/customers")
    assert any("orders refers to customers, so it is the left side" in fact for fact in made.facts)


def test_the_command_says_what_it_found_and_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, row in (("orders", {"id": 1, "customer_id": 7}), ("customers", {"id": 7})):
        lines(Path(name) / "00000001.jsonl", event(name, {"id": row["id"]}, row))
    samples = ["--from-sample", "orders/00000001.jsonl", "--from-sample", "customers/00000001.jsonl"]
    said = CliRunner().invoke(app, ["init", "shop", *samples])
    assert said.exit_code == 0, said.output
    assert "left  orders: debezium, exported records, 2 columns, key id" in said.output
    assert "cp orders/00000001.jsonl shop/landing/orders/" in said.output
    assert "fk-pipeline run shop/shop.yaml" in said.output
    as_json = CliRunner().invoke(app, ["init", "again", *samples, "--format", "json"])
    assert json.loads(as_json.stdout)["files"][0] == "again/again.yaml"


NASTY = [
    "order",
    "from",
    "true",
    "current_date",
    "group",
    "timestamp",
    "Values",
    "some-longish-name-with-hyphens",
    "größe",
    "null",
]


def test_names_that_sql_keeps_for_itself_are_quoted_wherever_they_stand(tmp_path: Path) -> None:
    left = {"from": 1, **{name: f"v{i}" for i, name in enumerate(NASTY[1:])}, "order": "x"}
    events = [event("lines", {"from": key}, left | {"from": key}) for key in (1, 2)]
    made = made_of(tmp_path, events, [{"order": "x", "case": 1}], ("lines", "orders"))
    assert [c.name for c in made.spec.left.columns] == list(left)
    assert made.spec.left.key == ("from",)
    assert made.spec.left.foreign_key == ("`order`",)


def test_rows_may_look_like_records_and_markers(tmp_path: Path) -> None:
    rows = [{"key": "a", "value": "b", "status": "END"}, {"key": "c", "value": None, "op": "m"}]
    found = sample(lines(tmp_path / "settings.jsonl", *rows))
    assert (found.format, found.records) == ("rows", 2)


def test_the_table_is_what_the_source_says_not_the_topic(tmp_path: Path) -> None:
    routed = event("orders", {"id": 1}, {"id": 1}) | {"topic": "everything"}
    archived = event("orders", {"id": 1}, {"id": 1})
    for one, schema in ((routed, "public"), (archived, "archive")):
        one["value"]["source"]["schema"] = schema
    found = read_sample(lines(tmp_path / "1.jsonl", routed, archived))
    assert [(one.table, one.options["table"]) for one in found] == [(n, n) for n in ("public.orders", "archive.orders")]


def test_a_header_of_csv_may_have_blanks(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("Order-No,Größe\n1,2\n")
    found = sample(file)
    assert list(types(found)) == ["`Order-No`", "`Größe`"]
    assert "taken for the names" in found.notes[0]


@pytest.mark.parametrize(
    ("left", "right", "in_place", "said"),
    [
        ("a.jsonl", "b.jsonl", True, "would read the other's files"),
        ("a.jsonl", None, True, "is not known"),
        ("bad.jsonl.gz", "b.jsonl", False, "cannot be read"),
        ("log", "b.jsonl", False, "no Delta table"),
    ],
)
def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    left: str, right: str | None, in_place: bool, said: str, tmp_path: Path
) -> None:
    lines(tmp_path / "a.jsonl", {"id": 1})
    lines(tmp_path / "b.jsonl", {"id": 1})
    (tmp_path / "bad.jsonl.gz").write_text("no gzip")
    (tmp_path / "log" / "_delta_log").mkdir(parents=True)
    files = [tmp_path / file for file in (left, right) if file]
    with pytest.raises(UsageError, match=said):
        make_folder(tmp_path / "shop", files, kind=Meant.FOREIGN_KEY, in_place=in_place)
    assert not (tmp_path / "shop").exists()


def test_a_left_side_without_a_column_to_refer_by_gets_a_place_for_it(tmp_path: Path) -> None:
    made = made_of(tmp_path, [{"x": 1.5}], [{"id": 1}], ("a", "b"))
    assert made.to_do == (
        f"write in {made.file} which columns identify a row of a (left.key): nothing in the sample tells",
        f"write in {made.file} which left column refers to a row of b (left.foreign_key)",
    )


def test_a_delta_table_is_read_where_it_lies(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "orders", pa.table({"id": [1], "city_id": [2]}))
    made = make_folder(tmp_path / "shop", [tmp_path / "orders", lines(tmp_path / "cities.jsonl", {"city_id": 2})])
    assert (made.spec.left.path, made.spec.right.path) == ("../orders", "landing/cities")


@pytest.mark.slow
@pytest.mark.spark
def test_a_pipeline_from_samples_of_the_demo_runs_and_is_right(tmp_path: Path, spark: Any) -> None:
    made = make_folder(tmp_path / "shop", [DEMO / "flights", DEMO / "planes"], in_place=True)
    assert made.spec.left.foreign_key == ("tailnum",)
    pipeline = Pipeline(made.spec, spark)
    pipeline.run("0..1")
    report = pipeline.verify()
    assert report.ok
    assert report.rows > 20_000
    assert pipeline.table("resolved_join").where("manufacturer IS NOT NULL").count() > 10_000
