"""What lands is what is read: every format and type against a reader of its own, Python's `json` with exact numbers."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.spec import SideSpec
from tests.cdc.independent import Number, text_of, value_of

pytestmark = pytest.mark.spark

TYPES = {
    "ti": "TINYINT",
    "si": "SMALLINT",
    "i": "INT",
    "bi": "BIGINT",
    "d0": "DECIMAL(38,0)",
    "d2": "DECIMAL(10,2)",
    "d4": "DECIMAL(20,4)",
    "d18": "DECIMAL(38,18)",
    "f": "FLOAT",
    "x": "DOUBLE",
    "ok": "BOOLEAN",
    "s": "STRING",
    "d": "DATE",
    "t": "TIMESTAMP",
    "n": "TIMESTAMP_NTZ",
    "b": "BINARY",
    "a": "ARRAY<DECIMAL(20,4)>",
    "m": "MAP<STRING,DECIMAL(38,18)>",
    "st": "STRUCT<p: DECIMAL(10,2), q: STRING, r: ARRAY<DOUBLE>>",
}
SCHEMA = "id INT, " + ", ".join(f"{name} {kind}" for name, kind in TYPES.items())


def integer(bits: int) -> Callable[[Random], str]:
    return lambda random: str(random.randrange(-(1 << random.randrange(1, bits)), 1 << random.randrange(1, bits)))


def decimal(precision: int, scale: int) -> Callable[[Random], str]:
    """A number that the type holds: plain, with zeros at its end, with an exponent, or in quotes."""

    def make(random: Random) -> str:
        whole = str(random.randrange(10 ** random.randrange(precision - scale + 1)))
        part = "".join(random.choices("0123456789", k=random.randrange(scale + 1)))
        sign = random.choice(["", "-"])
        plain = sign + whole + (f".{part}" if part else "") + ("" if not part else "0" * random.choice([0, 0, 0, 3]))
        if random.random() < 0.2:
            digits = (whole + part).lstrip("0") or "0"
            if random.random() < 0.5:
                return f"{sign}{digits}{random.choice('eE')}-{len(part)}"
            return f"{sign}{digits[0]}.{digits[1:] or '0'}{random.choice('eE')}{len(digits) - 1 - len(part):+d}"
        return f'"{plain}"' if random.random() < 0.1 else plain

    return make


def floating(digits: int, most: int) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        number = "".join(random.choices("123456789", k=random.randrange(1, digits + 1)))
        written = f"{number[0]}.{number[1:] or '0'}"
        if random.random() < 0.5:
            written += f"{random.choice('eE')}{random.choice(['', '+', '-'])}{random.randrange(most)}"
        return random.choice(["", "-"]) + written

    return make


def scalar(random: Random) -> str:
    """What a STRING takes: any value, scalars most of all."""
    kind = random.randrange(6)
    if kind < 3:
        return decimal(30, random.randrange(12))(random)
    if kind == 3:
        return json.dumps(random.choice(["1.50", '"2.50', "a\\1.5", "[1.10]", "", "é1.0", "\u0001", "-0.0"]))
    if kind == 4:
        return random.choice(["true", "false", "-0.0", "0.10", "-0", "1E400", "1e-400"])
    inner = f'[{decimal(20, 4)(random)}, "1.10", {{"p": {decimal(20, 4)(random)}, "q": "\\"2.50"}}, null, 1.0]'
    return random.choice([inner, f'{{"a": {inner}, "b": -0.0}}'])


def moment(random: Random) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(
        microseconds=random.randrange(-(10**15), 4 * 10**15)
    )


def iso(random: Random, zone: str) -> str:
    at = moment(random).isoformat()
    return json.dumps(at + (random.choice(["", "000", "0"]) if "." in at else "") + zone)


WRITTEN: dict[str, Callable[[Random], str]] = {
    "ti": integer(7),
    "si": integer(15),
    "i": integer(31),
    "bi": integer(63),
    "d0": decimal(38, 0),
    "d2": decimal(10, 2),
    "d4": decimal(20, 4),
    "d18": decimal(38, 18),
    "f": floating(6, 30),
    "x": floating(15, 290),
    "ok": lambda random: random.choice(["true", "false", '"true"']),
    "s": scalar,
    "d": lambda random: random.choice([str(random.randrange(-9999, 30000)), f'"{moment(random).date()}"']),
    "t": lambda random: iso(random, random.choice(["Z", "+02:00", "-11:30", ""])),
    "n": lambda random: iso(random, random.choice(["Z", "", "+00:00"])),
    "b": lambda random: json.dumps(base64.b64encode(random.randbytes(random.randrange(9))).decode()),
    "a": lambda random: f"[{', '.join(random.choice([decimal(20, 4)(random), 'null']) for _ in range(3))}]",
    "m": lambda random: f'{{"a": {decimal(38, 18)(random)}, "b 1.5": null}}',
    "st": lambda random: (
        f'{{"q": {scalar(random)}, "p": {decimal(10, 2)(random)}, "r": [{floating(15, 290)(random)}, 0.5]}}'
    ),
}


def expected(value: Any, kind: str) -> Any:
    """What a value of JSON is as a value of a type."""
    return None if value is None else MADE[re.split("[(<]", kind, maxsplit=1)[0]](value, kind)


def _number(value: Any, _kind: str) -> int:
    return int(value)


def _date(value: Any, _kind: str) -> date:
    return date(1970, 1, 1) + timedelta(days=int(value)) if isinstance(value, Number) else date.fromisoformat(value)


def _moment(value: str, kind: str) -> datetime:
    found = re.fullmatch(r"(.{19})(\.\d+)?(.*)", value)
    assert found is not None
    at = datetime.fromisoformat(f"{found[1]}{(found[2] or '')[:7]}{found[3]}")
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.astimezone(UTC) if kind == "TIMESTAMP" else at.replace(tzinfo=None)


def _struct(value: Any, _kind: str) -> Any:
    parts = {"p": "DECIMAL", "q": "STRING", "r": "ARRAY<DOUBLE>"}
    return {name: expected(value.get(name), part) for name, part in parts.items()}


MADE: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _number),
    "DECIMAL": lambda value, _: Decimal(value),
    "FLOAT": lambda value, _: struct.unpack("f", struct.pack("f", float(value)))[0],
    "DOUBLE": lambda value, _: float(value),
    "BOOLEAN": lambda value, _: value if isinstance(value, bool) else value == "true",
    "STRING": lambda value, _: value if isinstance(value, str) else text_of(value),
    "DATE": _date,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_NTZ"), _moment),
    "BINARY": lambda value, _: base64.b64decode(value),
    "ARRAY": lambda value, kind: [expected(one, kind[6:-1]) for one in value],
    "MAP": lambda value, _: [(name, expected(one, "DECIMAL")) for name, one in value.items()],
    "STRUCT": _struct,
}


def lines_of(number: int, seed: int) -> list[str]:
    """Objects as JSON texts, of which every value is one of its type."""
    random = Random(seed)
    found = []
    for n in range(number):
        values = {name: "null" if random.random() < 0.03 else make(random) for name, make in WRITTEN.items()}
        random_space = random.choice(["", " ", "\t"])
        body = f",{random_space}".join(f'"{name}":{random_space}{value}' for name, value in values.items())
        found.append(f'{{"id": {n}, {body}}}')
    return found


def texts_of(line: str) -> list[str | None]:
    """The values of an object as texts, as a CSV file has them."""
    values = value_of(line)
    return [v if v is None or isinstance(v, str) else text_of(v) for v in (values[n] for n in ("id", *TYPES))]


def _json_file(shape: str) -> Callable[[list[str], Path], Path]:
    def make(lines: list[str], folder: Path) -> Path:
        (folder / "1.jsonl").write_text("".join(shape.replace("ROW", line) + "\n" for line in lines))
        return folder / "1.jsonl"

    return make


def _csv_file(lines: list[str], folder: Path) -> Path:
    quoted = (["" if v is None else '"' + v.replace('"', '""') + '"' for v in texts_of(line)] for line in lines)
    (folder / "LOAD00000001.csv").write_text("".join(",".join(row) + "\n" for row in quoted))
    return folder / "LOAD00000001.csv"


def _parquet_file(lines: list[str], folder: Path) -> Path:
    columns = list(zip(*map(texts_of, lines), strict=True))
    names = ["id", *TYPES]
    pq.write_table(
        pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)}),
        folder / "1.parquet",
    )
    return folder / "1.parquet"


STORED = {
    "ti": pa.int8(),
    "si": pa.int16(),
    "i": pa.int32(),
    "bi": pa.int64(),
    "d0": pa.decimal128(38, 0),
    "d2": pa.decimal128(10, 2),
    "d4": pa.decimal128(20, 4),
    "d18": pa.decimal128(38, 18),
    "f": pa.float32(),
    "x": pa.float64(),
    "ok": pa.bool_(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "b": pa.binary(),
    "a": pa.list_(pa.decimal128(20, 4)),
    "m": pa.map_(pa.string(), pa.decimal128(38, 18)),
    "st": pa.struct({"p": pa.decimal128(10, 2), "q": pa.string(), "r": pa.list_(pa.float64())}),
}
"""The declared types as files with columns store them."""


def _storable(value: Any) -> Any:
    """A value without the zeros at the end of its decimals, which Arrow takes for digits."""
    if isinstance(value, Decimal):
        return Context(prec=60).normalize(value)
    if isinstance(value, dict):
        return {name: _storable(one) for name, one in value.items()}
    return type(value)(map(_storable, value)) if isinstance(value, (list, tuple)) else value


def _typed(lines: list[str]) -> pa.Table:
    rows = list(map(value_of, lines))
    columns: dict[str, pa.Array] = {"id": pa.array([int(row["id"]) for row in rows], pa.int32())}
    for name, kind in STORED.items():
        columns[name] = pa.array([_storable(expected(row[name], TYPES[name])) for row in rows], kind)
    return pa.table(columns)


def _typed_parquet_file(lines: list[str], folder: Path) -> Path:
    pq.write_table(_typed(lines), folder / "1.parquet")
    return folder / "1.parquet"


def _delta_table(lines: list[str], folder: Path) -> Path:
    write_deltalake(str(folder / "table"), _typed(lines))
    return folder / "table@..0"


FILES: dict[str, tuple[dict[str, Any], Callable[[list[str], Path], Path]]] = {
    "rows": ({"format": "rows"}, _json_file("ROW")),
    "debezium, exported": (
        {"format": "debezium"},
        _json_file('{"topic":"t","key":{"id":null},"headers":null,"value":{"op":"c","after":ROW,"source":{"lsn":1}}}'),
    ),
    "debezium, envelope": ({"format": "debezium"}, _json_file('{"payload":{"before":null,"after":ROW,"op":"u"}}')),
    "debezium, flattened": ({"format": "debezium"}, _json_file('{"schema":{"x":1.50},"payload":{"__op":"u",ROW}}')),
    "maxwell": ({"format": "maxwell"}, _json_file('{"type":"insert","xoffset":1,"data":ROW}')),
    "csv": ({"format": "csv", "csv": {"header": False}}, _csv_file),
    "dms": ({"format": "dms"}, _csv_file),
    "parquet, texts": ({"format": "parquet"}, _parquet_file),
    "parquet, types": ({"format": "parquet"}, _typed_parquet_file),
    "delta": ({"format": "delta"}, _delta_table),
}


def parsed(spark: SparkSession, spec: SideSpec, path: Path, columns: str) -> pa.Table:
    place = {"batch": F.lit(0), "file": F.lit("f"), "file_number": F.lit(0)}
    lines = format_of(spec).read(spark, [str(path)], spec).withColumns(place)
    return format_of(spec).parse(lines, spec).selectExpr(*columns.split("; ")).toArrow()


ALIKE = ("debezium, envelope", "debezium, flattened", "maxwell", "dms")
"""Files whose values are read as those of others: "rows", "debezium, exported" and "csv"."""


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in ALIKE else ()) for n in FILES])
def test_what_is_written_is_what_is_typed(spark: SparkSession, tmp_path: Path, name: str, number: int) -> None:
    changes, make = FILES[name]
    days = {} if changes["format"] == "debezium" else {"logical_types": {"d": "epoch_days"}}
    spec = SideSpec.model_validate({"path": "x", "schema": SCHEMA, "key": "id", **changes, **days})
    lines = lines_of(number, seed=number)
    written = [line[1:-1] if "flattened" in name else line for line in lines]
    path = make(written, tmp_path)
    found = parsed(spark, spec, path, "kind; reason; rounded; row.*").sort_by("id").to_pylist()
    bad = [(row["reason"], line) for row, line in zip(found, lines, strict=False) if row["kind"] != "event"]
    assert not bad, bad[:3]
    assert len(found) == number
    assert not [row["rounded"] for row in found if row["rounded"]]
    for row, line in zip(found, map(value_of, lines), strict=True):
        for column, kind in TYPES.items():
            wanted, got = expected(line[column], kind), row[column]
            assert got == wanted, (column, line[column])


CONVERTED = {
    **dict.fromkeys(("ti", "si", "i", "bi"), ("DECIMAL(38,0)", Decimal)),
    **dict.fromkeys(("d0", "d2", "d4", "d18"), ("STRING", Decimal)),
    "f": ("STRING", lambda text: struct.unpack("f", struct.pack("f", float(text)))[0]),
    "x": ("STRING", float),
    "ok": ("STRING", lambda text: text == "true"),
    "d": ("STRING", date.fromisoformat),
    "t": ("STRING", lambda text: _moment(text, "TIMESTAMP")),
    "n": ("STRING", lambda text: _moment(text, "TIMESTAMP_NTZ")),
    "a": ("STRING", lambda text: expected(value_of(text), TYPES["a"])),
    "m": ("STRING", lambda text: expected(value_of(text), TYPES["m"])),
    "st": ("STRING", lambda text: expected(value_of(text), TYPES["st"])),
}
"""Types that are declared where another is stored, and the stored value from the one that is read."""


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["parquet, types", pytest.param("delta", marks=pytest.mark.slow)])
def test_a_stored_value_of_another_type_is_the_same_value(
    spark: SparkSession, tmp_path: Path, name: str, number: int
) -> None:
    changes, make = FILES[name]
    schema = "id INT, " + ", ".join(f"{column} {kind}" for column, (kind, _) in CONVERTED.items())
    spec = SideSpec.model_validate({"path": "x", "schema": schema, "key": "id", **changes})
    lines = lines_of(number, seed=number)
    found = parsed(spark, spec, make(lines, tmp_path), "kind; reason; rounded; row.*").sort_by("id").to_pylist()
    assert [row["id"] for row in found] == list(range(number))
    assert not (bad := [row for row in found if row["kind"] != "event" or row["rounded"]]), bad[:3]
    for row, line in zip(found, map(value_of, lines), strict=True):
        for column, (_, stored) in CONVERTED.items():
            wanted, got = expected(line[column], TYPES[column]), row[column]
            assert (None if got is None else stored(got)) == wanted, (column, got, line[column])


ROUND = "column p: {} would be rounded as DECIMAL(10, 2); declare more digits after the point, or STRING"
ALTERED = {
    "1.005": ROUND.format("1.005"),
    "1E-3": ROUND.format("1E-3"),
    "1e-999999999": ROUND.format("1e-999999999"),
    "1e999999999": "column p: 1e999999999 is not DECIMAL(10, 2)",
    "123456789.5": "column p: 123456789.5 is not DECIMAL(10, 2)",
    '"1.5 "': None,
    "1.10000": None,
    "0e-99": None,
    "120E-2": None,
}
ROUNDED = {
    '"x": 3.14159265358979323846': "x",
    '"x": 1234567890123456.7891': "x",
    '"x": 1e-400': "x",
    '"x": 0.1': None,
    '"f": 0.10000000149011612': None,
    '"f": 16777217': "f",
    '"d": "2024-05-01T23:59:00Z"': "d",
    '"d": "2024-05-01T00:00:00+02:00"': None,
    '"t": "2024-05-01T10:00:00.1234567Z"': "t",
    '"t": "2024-05-01T10:00:00.1234560Z"': None,
    '"n": "2024-05-01T10:00:00+02:00"': "n",
    '"n": "2024-05-01T10:00:00Z"': None,
    '"e": 1714557600000000001, "x": 0.12345678901234567891': "x,e",
}
NOT_ONE = [
    '{"id":2}{"id":3}', '{"id":2} garbage', '{"id":2}]', '{"id":2}]}', '{"id":2},{"x":1}', '{"id":2},{"_fk_end":"x"}]}',
    '{"id":2}],"_fk_line":[{"id":3}', '{"id":2}]},{"_fk_line":[{"id":3}', '{"id":2.50}{"id":3.50}',
]  # fmt: skip
NO_OBJECT = [
    "[1]",
    '"x"',
    "7",
    "1.5",
    '[{"id":2}]',
    '{"id":1,"x":01}',
    '{"id":1,"x":1.}',
    "{1.5 :2.5}",
    '{"id":1.5 2.5}',
]


def test_what_would_be_altered_is_quarantined_or_told(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, p DECIMAL(10,2), x DOUBLE, f FLOAT, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, e TIMESTAMP"
    changes = {"schema": schema, "logical_types": {"e": "epoch_nanos"}}
    spec = SideSpec.model_validate({"path": "x", "key": "id", "format": "rows", **changes})
    lines = [f'{{"id": 1, "p": {value}}}' for value in ALTERED]
    lines += [f'{{"id": 1, {values}}}' for values in ROUNDED]
    lines += ['{"id":1,"d":"2024-05-01 x"}', '{"id":1,"t":"10:00:00"}', '{"id":1,"x":"1.5d"}', *NOT_ONE, *NO_OBJECT]
    lines += [' \t{"id":1}\t\r', "null"]
    (tmp_path / "1.jsonl").write_text("".join(line + "\n" for line in lines))
    found = (
        parsed(spark, spec, tmp_path / "1.jsonl", "position; value; reason; rounded").sort_by("position").to_pylist()
    )
    assert [row["value"] for row in found] == lines
    reasons, rounded = [row["reason"] for row in found], [row["rounded"] for row in found]
    assert reasons[: len(ALTERED)] == list(ALTERED.values())
    at = len(ALTERED)
    assert (reasons[at : at + len(ROUNDED)], rounded[at : at + len(ROUNDED)]) == (
        [None] * len(ROUNDED),
        [*ROUNDED.values()],
    )
    at += len(ROUNDED)
    assert reasons[at : at + 3] == [
        "column d: 2024-05-01 x is not DATE", "column t: 10:00:00 is not TIMESTAMP", "column x: 1.5d is not DOUBLE",
    ]  # fmt: skip
    rest = reasons[at + 3 :]
    assert rest[: len(NOT_ONE)] == ["not one JSON object: other text is on its line"] * len(NOT_ONE)
    assert all(reason is not None and "JSON object" in reason for reason in rest[len(NOT_ONE) : -2]), rest
    assert rest[-2:] == [None, "not a JSON object"]


@pytest.mark.slow
def test_a_long_line_is_read_in_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    spec = SideSpec.model_validate({"path": "x", "schema": "id INT, s STRING, p STRING", "key": "id", "format": "rows"})
    long = '\\\\\\"x1.5' * 600_000
    lines = [
        f'{{"id":1,"s":"{long}","p":1.50}}',
        f'{{"id":2,"p":[{"1.50," * 900_000}1]}}',
        f'{{"id":3,"p":1.5,"s":"{long}',
    ]
    (tmp_path / "1.jsonl").write_text("".join(line + "\n" for line in lines))
    found = parsed(spark, spec, tmp_path / "1.jsonl", "position; reason; row.p").sort_by("position").to_pylist()
    assert [row["reason"] for row in found] == [None, None, "not a JSON object"]
    assert found[0]["p"] == "1.50"
    assert found[1]["p"] == f"[{'1.50,' * 900_000}1]"
