"""`verify --inputs`: what was read is what landed, in every format; what was misread or not compared is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.cli.main import app
from fk_pipeline.identity import Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import SideSpec, load_spec, quote
from fk_pipeline.store.settings import settings as spark_settings
from fk_pipeline.store.settings import suiting
from fk_pipeline.verify.inputs import inputs
from fk_pipeline.verify.inputs.inputs import reader_of
from fk_pipeline.verify.inputs.landed import Fate, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.report import InputsReport
from fk_pipeline.verify.inputs.stored import plain_sql, read_back
from fk_pipeline.verify.inputs.typed import same
from tests.landing import write_lines

pytestmark = pytest.mark.spark

TYPES = (
    "o BOOLEAN, n BIGINT, p DECIMAL(12,3), f FLOAT, x DOUBLE, t TIMESTAMP, u TIMESTAMP_NTZ, b BINARY, "
    "a ARRAY<INT>, m MAP<STRING,DECIMAL(9,2)>, s STRUCT<q: STRING, r: DATE>, v STRING"
)
ROW = json.loads(
    f'{{"o": true, "n": {-(2**63)}, "p": 1.5, "f": 0.1, "x": 1e300, "t": "2024-05-01T10:00:00.5+02:00", '
    '"u": "0001-01-01T00:00:00", "b": "aGk=", "a": [1, null], "m": {"a": 1.5}, "s": {"q": "é", "r": "1969-12-31"}, '
    '"v": {"of": [1.1, "text"]}}'
)


def made(folder: Path, spark: SparkSession, left: str, right: str, more: str = "") -> Pipeline:
    """A pipeline of two inputs, given by all but path, key and foreign key."""
    file = folder / "p.yaml"
    file.write_text(
        f"name: p\njoin: left\nleft: {{path: left, key: id, foreign_key: k, {left}}}\n"
        f"right: {{path: right, key: k, {right}}}\nselect: [id]\n{more}"
    )
    return Pipeline(load_spec(file), spark)


def changed(pipeline: Pipeline, table: str, what: str) -> InputsReport:
    """The report after a changelog was changed behind the pipeline's back."""
    path = f"delta.`{pipeline.runner.warehouse.path(table)}`"
    with spark_settings(pipeline.session, suiting(0)):
        pipeline.session.sql(what.format(table=path))
    return pipeline.verify_inputs()


def told(report: InputsReport) -> list[tuple[str, ...]]:
    return [(one.what, one.key, one.column, one.landed, one.stored) for one in report.sample]


@pytest.mark.slow
def test_rows_and_csv(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = made(
        tmp_path,
        spark,
        f"format: rows, op_column: op, schema: 'id INT, k STRING, {TYPES}'",
        "format: csv, contents: snapshot, schema: 'k STRING, v STRING, d DATE'",
    )
    written = [{"op": "u", "id": number, "k": "a", **ROW} for number in range(5)]
    gone: list[Any] = [
        {"op": "d", "id": 1},
        {"op": "update_preimage", "id": 2},
        {"op": "d"},
        {"op": "u", "id": 4, "n": "no"},
        "",
    ]
    write_lines(tmp_path / "left/1.jsonl", [*written, *gone, "{broken"])
    write_lines(tmp_path / "left/2.jsonl", [{"op": "u", "id": 8}, {"op": "t"}, {"op": "u", "id": 9}])
    write_lines(tmp_path / "right/1.csv", ["k,v,d", 'a,"x, y",2024-05-01', 'b,"",'])
    notes = [note for run in pipeline.run() for note in run.notes]
    assert any("1 old image(s) of left were ignored: where an update changed the key" in note for note in notes)
    checks = json.loads(CliRunner().invoke(app, ["doctor", str(tmp_path / "p.yaml"), "--format", "json"]).stdout)
    assert [(one["ok"], one["found"].split(":")[0]) for one in checks if one["name"] == "Keys"] == [
        (True, "1 old image(s) of left were ignored")
    ]
    report = pipeline.verify_inputs()
    counts = {"batches": 3, "files": 3, "lines": 16, "written": 9, "deleted": 1, "truncated": 1, "quarantined": 3}
    assert report.counts() == counts | {"ignored": 2, "closed": 0, "doubtful": 0, "rows": 10, "differences": 0}, (
        report.sample
    )
    assert (report.ok, report.is_sample, report.not_compared) == (True, False, [])
    names = [*DECLARED]
    nulls = ", ".join(f"{name} = NULL" for name in names)
    found = changed(pipeline, "left_changelog", f"UPDATE {{table}} SET {nulls} WHERE id = 3 AND _fk_batch = 1")
    assert [(one.column, one.stored) for one in found.sample] == [(name, "NULL") for name in names]
    assert {(one.what, one.file, one.line, one.key) for one in found.sample} == {("value", "left/1.jsonl", 4, "id=3")}
    found = changed(pipeline, "right_changelog", "UPDATE {table} SET k = IF(k = 'a', 'c', k), v = NULL")
    assert {one for one in told(found) if one[1].startswith("k=")} == {
        ("value", "k=b", "v", '""', "NULL"),
        ("missing", "k=a", "", "the row is written", "no row"),
        ("unexpected", "k=c", "", "no record has this key", "op u"),
    }


FEED = [
    *[(1, "insert", 1), (1, "insert", 2)],
    *[(2, "update_preimage", 1), (2, "update_postimage", 1)],
    *[(3, "update_preimage", 1), (3, "update_postimage", 3)],
    *[(4, kind, number) for kind in ("update_preimage", "update_postimage") for number in (2, 3)],
    *[(5, "update_preimage", 2), (5, "update_postimage", 5)],
]
"""The change feed of a Delta table as (commit, kind, key): keys change, and two rows swap theirs."""


@pytest.mark.parametrize(
    ("order", "is_feed"),
    [("_commit_version", True), ("`_COMMIT_timestamp`", True), ("updated_at", False), ("_commit_version + 1", False)],
)
def test_only_commits_order_the_rows_of_a_change_feed(tmp_path: Path, order: str, is_feed: bool) -> None:
    """A delete has the `updated_at` of the row that it removes: as of one commit with it, it would lose."""
    columns = "k STRING, updated_at INT, _commit_version INT, _commit_timestamp TIMESTAMP"
    (tmp_path / "p.yaml").write_text(
        "name: p\nkind: aggregate\ngroup_by: [k]\naggregates: ['count(*) AS n']\n"
        f"input: {{path: in, format: rows, key: k, op_column: _change_type, schema: '{columns}',\n"
        f"  sequence_by: {order!r}}}\n"
    )
    assert load_spec(tmp_path / "p.yaml").side(Side.INPUT).feed_of_delta == is_feed


@pytest.mark.slow  # what orders a feed: the test before; old images: cdc/test_as_meant.py
def test_the_feed_of_a_delta_table_in_files_in_any_order(tmp_path: Path, spark: SparkSession) -> None:
    ordered = "STRING, v STRING, _commit_version INT', op_column: _Change_Type, sequence_by: _Commit_Version, key"
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: p\njoin: outer\nselect: [id, left.v AS l, right.v AS r]\n"
        f"left: {{path: left, format: rows, schema: 'id {ordered}: id, foreign_key: id}}\n"
        f"right: {{path: right, format: csv, schema: 'k {ordered}: k}}\n"
    )
    (tmp_path / "right").mkdir()
    for number, (commit, kind, key) in enumerate(reversed(FEED)):
        line = {"_change_type": kind, "id": str(key), "v": f"{kind} {commit}", "_commit_version": commit}
        write_lines(tmp_path / f"left/{number}.jsonl", [line])
        rows = f"k,v,_commit_version,_change_type\n{key},{line['v']},{commit},{kind}\n"
        (tmp_path / "right" / f"{number}-{number % 3}.csv").write_text(rows)
    pipeline = Pipeline(load_spec(file), spark)
    assert not [note for run in pipeline.run() for note in run.notes if "old image" in note]
    found = {(row["id"], row["l"], row["r"]) for row in pipeline.table("resolved_join").collect()}
    assert found == {(key, f"update_postimage {c}", f"update_postimage {c}") for key, c in (("3", 4), ("5", 5))}
    assert pipeline.verify_inputs().ok
    assert pipeline.verify().ok


def test_debezium_and_parquet(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = made(
        tmp_path,
        spark,
        "format: debezium, schema: 'id INT, k STRING, v STRING, d DATE', table: t",
        "format: parquet, schema: 'k STRING, n BIGINT, t TIMESTAMP', op_column: op",
    )

    def event(op: str, place: int, row: Any, **more: Any) -> dict[str, Any]:
        source = {"sequence": f'["{place}","{place}"]', "table": "t"}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return {**images, "op": op, "source": source, **more}

    unsent = {"id": 1, "k": "a", "v": "__debezium_unavailable_value", "d": 5}
    write_lines(
        tmp_path / "left/1.jsonl",
        [
            event("c", 2, {"id": 1, "k": "a", "v": "x", "d": 19844}),
            event("u", 9, unsent),
            event("c", 3, {"id": 2, "k": "a", "v": "late"}),
            event("u", 8, {"id": 2, "k": "b", "v": "x"}),
            event("u", 7, {"id": 2, "k": "c", "v": "x"}),
            event("d", 10, {"id": 3}),
            {"topic": "t", "key": {"id": 3}, "value": None},
            event("x", 11, {"id": 4}),
        ],
    )
    (tmp_path / "right").mkdir()
    times = pa.array([1714557600123456, None], pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"op": ["u", "d"], "K": ["a", "b"], "n": ["7", None], "t": times}), tmp_path / "right/1.parquet"
    )
    pipeline.run()
    report = pipeline.verify_inputs()
    assert (report.counts()["lines"], report.ok, report.ignored, report.quarantined) == (10, True, 1, 1), report.sample
    assert told(
        changed(pipeline, "left_changelog", "UPDATE {table} SET d = DATE'1970-01-07', _fk_op = 'c' WHERE id = 1")
    ) == [
        ("operation", "id=1", "", "op u", "op c"),
        ("value", "id=1", "d", "1970-01-06", "1970-01-07"),
    ]
    assert told(changed(pipeline, "right_changelog", "UPDATE {table} SET _fk_deleted = TRUE, t = NULL WHERE k = 'a'"))[
        2:
    ] == [("operation", "k=a", "", "the row is written", "it is deleted")]


@pytest.mark.slow
def test_maxwell_and_dms(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = made(
        tmp_path,
        spark,
        "format: maxwell, schema: 'id INT, k STRING, v STRING'",
        "format: dms, schema: 'k STRING, n BIGINT'",
    )
    row = {"type": "insert", "position": "m.000006:91", "data": {"id": 1, "k": "a", "v": 1.50}}
    moved = {
        **row,
        "type": "update",
        "position": "m.000006:99",
        "data": {"id": 2, "k": "a", "v": "x"},
        "old": {"id": 1},
    }
    write_lines(tmp_path / "left/1.jsonl", [row, moved, {**row, "type": "table-alter"}, {**row, "type": "odd"}])
    write_lines(tmp_path / "right/LOAD00000001.csv", ["a,1", "b,2"])
    write_lines(tmp_path / "right/20141029-113401000.csv", ["U,a,7", "D,b,"])
    pipeline.run()
    report = pipeline.verify_inputs()
    assert (report.lines, report.written, report.deleted, report.ok) == (8, 5, 2, True), report.sample
    assert told(changed(pipeline, "left_changelog", "DELETE FROM {table} WHERE id = 1")) == [
        ("missing", "id=1", "", "the row is deleted", "no row")
    ]
    assert told(changed(pipeline, "right_changelog", "UPDATE {table} SET _fk_events = 1 WHERE k = 'a'"))[1:] == [
        ("count", "k=a", "", "2 record(s) of the key", "1")
    ]


@pytest.mark.slow
def test_versions_of_a_delta_table_and_what_is_not_compared(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = made(
        tmp_path,
        spark,
        "format: rows, batch_by: arrival, schema: 'id INT, k STRING'",
        "format: delta, schema: 'k STRING, n STRING'",
    )
    table, fed = str(tmp_path / "right"), {"delta.enableChangeDataFeed": "true"}
    write_deltalake(table, pa.table({"k": ["a", "b"], "n": ["A", "B"]}), configuration=fed)
    write_lines(tmp_path / "left/1.jsonl", [{"id": 1, "k": "a"}])
    pipeline.run()
    DeltaTable(table).update(predicate="k = 'a'", updates={"n": "'C'"})
    DeltaTable(table).delete("k = 'b'")
    write_lines(tmp_path / "left/2.jsonl", [{"id": 2, "k": "a"}])
    pipeline.run()
    report = pipeline.verify_inputs()
    assert (report.batches, report.ok, report.not_compared) == (4, True, []), report.sample
    [one] = changed(pipeline, "right_changelog", "UPDATE {table} SET n = 'D' WHERE n = 'C'").sample
    assert (one.what, one.column, one.landed, one.stored) == ("value", "n", "C", "D")

    (tmp_path / "left/1.jsonl").rename(tmp_path / "moved.jsonl")
    write_lines(tmp_path / "left/2.jsonl", [{"id": 2, "k": "other"}])
    shutil.rmtree(tmp_path / "right/_change_data", ignore_errors=True)
    [_, *rest] = pipeline.verify_inputs().not_compared
    why = {(str(one.side), one.why) for one in pipeline.verify_inputs().not_compared}
    assert ("left", "a file of it is gone") in why, rest
    assert ("left", "a file of it has changed since it was read") in why
    monkeypatch.setattr(inputs, "SAMPLED_FROM", 1)
    sample = pipeline.verify_inputs()
    assert (sample.is_sample, sample.batches) == (True, 1)
    assert pipeline.verify_inputs(1).bytes_read == sample.bytes_all


def test_the_command_names_what_was_misread_and_shows_no_sensitive_value(rows_pipeline: Any) -> None:
    pipeline = rows_pipeline("left", left_extra="  sensitive: [v]\n")
    pipeline.land(1, [(1, "a", "secret"), (2, "a", "hidden"), "{broken"], [("a", "A")])
    pipeline.pipeline.run()

    def verified(*more: str) -> Any:
        return CliRunner().invoke(app, ["verify", str(pipeline.file), "--inputs", "--no-checks", *more])

    found = verified()
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[-2:] == [
        "4 lines in 2 landing files, read anew: what was read is what landed",
        "3 written, 0 deleted, 1 in the quarantine, 0 ignored; compared with 3 rows of the changelogs",
    ]
    changed(pipeline.pipeline, "left_changelog", "UPDATE {table} SET v = 'wrong' WHERE id = 2")
    changed(pipeline.pipeline, "right_changelog", "UPDATE {table} SET name = 'B'")
    found = verified()
    assert found.exit_code == 1
    lines = [line for line in found.stdout.splitlines() if line.startswith("- value")]
    hidden = "landed: a sensitive value; stored: a sensitive value"
    assert lines == [
        f"- value: left, landing/left/00000001.jsonl, line 2 (id=2, column v): {hidden}",
        "- value: right, landing/right/00000001.jsonl, line 1 (k=a, column name): landed: A; stored: B",
    ]
    found = json.loads(verified("--format", "json").stdout)["inputs"]
    assert (found["differences"], [one["column"] for one in found["sample"]]) == (2, ["v", "name"])


# ---- both readers, line by line

SCHEMA = f"id INT, {TYPES}, d DATE"
NUMBERS = [
    "0",
    "-1",
    "1.10",
    "1E-2",
    "2.0e3",
    "1e400",
    "99999999999",
    "9223372036854775808",
    "-0.0",
    "0x10",
    "1_000",
    " 7",
]
MOMENTS = [
    *("2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01 10:00:00.1234567", "2024-05-01T10:00:00+02:00", "2024-02-30"),
    *("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999Z", "2024-05-01T25:00:00", "2024-5-1", "2024-05-01T10:00", "x"),
]
OTHERS = [
    "",
    " ",
    "true",
    "NO",
    "NaN",
    "-Infinity",
    "aGk=",
    "aGk",
    "é\u2028",
    "null",
    "[1, 2]",
    '{"q": 1.50}',
    "a,b",
    '"',
]
TEXTS = st.sampled_from([*NUMBERS, *MOMENTS, *OTHERS]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\r"), max_size=5
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["q", "r", "a"]), inner, max_size=2),
    max_leaves=3,
)
DECLARED = [*"onpfxtubamsv"]
JSON_ROWS = st.fixed_dictionaries(
    {"id": st.integers(0, 2**31 - 1) | JSONS},
    optional=dict.fromkeys(DECLARED, JSONS) | {"d": st.none() | st.sampled_from(MOMENTS)},
)
CSV_ROWS = st.tuples(st.integers(0, 99).map(str) | TEXTS, *[TEXTS for _ in DECLARED], st.sampled_from(["", *MOMENTS]))


def disagreements(spark: SparkSession, file: Path, side: SideSpec) -> list[tuple[Any, ...]]:
    """The records of a file of which the product and the independent reader do not say the same."""
    reads = format_of(side)
    place = {"batch": F.lit(7), "file": F.col("path"), "file_number": F.lit(0)}
    columns = [(quote(column.name), column.type) for column in side.columns]
    converts = [read_back(dtype) for _, dtype in columns]
    values = [plain_sql(f"row.{name}", dtype) for name, dtype in columns]
    found = reads.parse(reads.read(spark, [str(file)], side).withColumns(place), side)
    rows = found.orderBy("block", "position").selectExpr("kind", "reason", *values).collect()
    entries = [*reader_of(InputColumns(side), 1 << 23).entries(FilePlace(str(file), str(file), "f", 7, 0))]
    assert len(rows) == len(entries)
    wrong = []
    for (kind, reason, *stored), entry in zip(rows, entries, strict=True):
        made = [value if value is None or to is None else to(value) for value, to in zip(stored, converts, strict=True)]
        if not (_is_alike(kind, entry) and (kind != "event" or _are_same(made, entry, side))):
            wrong.append((entry.line, kind, reason, made, entry))
    return wrong[:3]


def _is_alike(kind: str, entry: LandedRecord) -> bool:
    expected = {Fate.WRITTEN: "event", Fate.IGNORED: "ignored", Fate.QUARANTINED: "bad"}[entry.fate]
    return kind == expected or (entry.doubt and {kind, expected} <= {"event", "bad"})


def _are_same(made: Sequence[Any], entry: LandedRecord, side: SideSpec) -> bool:
    if entry.fate is not Fate.WRITTEN or entry.key is None:
        return True
    return all(map(same, [*entry.key, *entry.values], made))


def side_of(format_: str) -> SideSpec:
    return SideSpec.model_validate({"path": "x", "format": format_, "schema": SCHEMA, "key": "id"})


FEW = settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],  # to look for a smaller example would take minutes
)


@pytest.mark.slow  # in what is read: test_rows_and_csv
@FEW
@given(st.lists(JSON_ROWS, min_size=60, max_size=150))
def test_both_readers_agree_on_lines(spark: SparkSession, tmp_path_factory: Any, rows: list[dict[str, Any]]) -> None:
    file = write_lines(tmp_path_factory.mktemp("lines") / "1.jsonl", rows)
    assert not (wrong := disagreements(spark, file, side_of("rows"))), wrong


@pytest.mark.slow  # in what is read: test_rows_and_csv
@FEW
@given(st.lists(CSV_ROWS, min_size=60, max_size=150), st.booleans())
def test_both_readers_agree_on_csv_files(
    spark: SparkSession, tmp_path_factory: Any, rows: list[tuple[str, ...]], quoted: bool
) -> None:
    def field(value: str) -> str:
        needed = quoted or any(one in value for one in ',"\n')
        return f'"{value.replace(chr(34), chr(34) * 2)}"' if needed else value

    file = tmp_path_factory.mktemp("csv") / "1.csv"
    text = "\n".join(",".join(map(field, row)) for row in [("id", *DECLARED, "d"), *rows])
    file.write_text(text + "\n", newline="")
    assert not (wrong := disagreements(spark, file, side_of("csv"))), wrong
