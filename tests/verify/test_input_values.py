"""The values of the independent reader, type by type: what is read, what is refused, what it does not claim to know."""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fk_pipeline.verify.inputs.doubts import ANY, Doubtful, MisfitError
from fk_pipeline.verify.inputs.moments import date_of, date_text, moment_of, moment_text
from fk_pipeline.verify.inputs.sent import Days, Instant, Single, json_of
from fk_pipeline.verify.inputs.typed import converter, same

REFUSED = object()


def read(dtype: str, sent: Any, how: str | None = None, *, day_numbers: bool = False) -> Any:
    """What a type makes of a value of JSON, written as text; or of another value."""
    landed = json_of(sent) if isinstance(sent, str) else sent
    try:
        return converter(dtype, how, day_numbers=day_numbers)(landed)
    except MisfitError:
        return REFUSED


def at(*parts: int) -> int:
    return (datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)  # type: ignore[arg-type,misc]


VALUES: list[tuple[str, str, Any]] = [
    ("BOOLEAN", "true", True),
    ("BOOLEAN", '"False"', False),
    ("BOOLEAN", "2", REFUSED),
    ("TINYINT", "127", 127),
    ("TINYINT", "128", REFUSED),
    ("SMALLINT", '"-32768"', -32768),
    ("INT", "2147483648", REFUSED),
    ("INT", "1.0", REFUSED),
    ("INT", "1e2", REFUSED),
    ("INT", "true", REFUSED),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("DECIMAL(10,2)", "1.100", Decimal("1.1")),
    ("DECIMAL(10,2)", "1E-2", Decimal("0.01")),
    ("DECIMAL(10,2)", "1.005", REFUSED),
    ("DECIMAL(10,2)", "1E-3", REFUSED),
    ("DECIMAL(10,2)", "12345678.9", Decimal("12345678.9")),
    ("DECIMAL(10,2)", "123456789", REFUSED),
    ("DECIMAL(38,0)", '"1e37"', Decimal(10) ** 37),
    ("DECIMAL(20,4)", "1234567890123456.7891", Decimal("1234567890123456.7891")),
    ("DECIMAL(10,2)", "-0.00", Decimal(0)),
    ("DECIMAL(10,2)", "1e-999999999", REFUSED),
    ("DECIMAL(10,2)", '{"scale": 3, "value": "BNI="}', REFUSED),
    ("DECIMAL(10,2)", '{"scale": 2, "value": "BNI="}', Decimal("12.34")),
    ("DECIMAL(10,2)", '{"scale": -2, "value": "/w=="}', Decimal(-100)),
    ("FLOAT", "0.1", 0.10000000149011612),
    ("FLOAT", "1e39", REFUSED),
    ("DOUBLE", "3.14159265358979323846", math.pi),
    ("DOUBLE", '"NaN"', math.nan),
    ("DOUBLE", "NaN", math.nan),
    ("DOUBLE", '"-Infinity"', -math.inf),
    ("DOUBLE", "1e400", REFUSED),
    ("DOUBLE", '"0x10"', REFUSED),
    ("STRING", "1.10", "1.10"),
    ("STRING", "true", "true"),
    ("STRING", "NaN", "NaN"),
    ("STRING", '"\\ud800"', Doubtful(ANY)),
    ("DATE", '"2024-05-01"', 19844),
    ("DATE", '"2024-05-01T23:59:00Z"', 19844),
    ("DATE", '"1582-10-10"', -141432),
    ("DATE", '"2024-02-30"', REFUSED),
    ("DATE", '"2024-05"', REFUSED),
    ("DATE", "20240501", REFUSED),
    ("DATE", "2024", REFUSED),
    ("DATE", '"2024-5-1"', Doubtful(19844)),
    ("DATE", '"2024-05-01T25:00:00"', REFUSED),
    ("TIMESTAMP", '"2024-05-01T10:00:00.1234567"', at(2024, 5, 1, 10, 0, 0, 123456)),
    ("TIMESTAMP", '"2024-05-01T10:00:00+02:00"', at(2024, 5, 1, 8)),
    ("TIMESTAMP", '"2024-05-01 10:00:00-11:30"', at(2024, 5, 1, 21, 30)),
    ("TIMESTAMP", '"2024-05-01"', at(2024, 5, 1)),
    ("TIMESTAMP", '"2024-05-01T10:00:00 Europe/Berlin"', Doubtful(ANY)),
    ("TIMESTAMP", '"2024-05-01T10:00"', Doubtful(at(2024, 5, 1, 10))),
    ("TIMESTAMP", "1714557600000", REFUSED),
    ("TIMESTAMP", '"10:00:00"', REFUSED),
    ("TIMESTAMP", '"2024-05"', REFUSED),
    ("TIMESTAMP_NTZ", '"2024-05-01T10:00:00+02:00"', at(2024, 5, 1, 10)),
    ("BINARY", '"aGk="', b"hi"),
    ("BINARY", '"aGk"', Doubtful(b"hi")),
    ("BINARY", '"?"', REFUSED),
    ("ARRAY<DECIMAL(10,2)>", "[1.10, null]", [Decimal("1.1"), None]),
    ("ARRAY<INT>", "[1, 2.5]", REFUSED),
    ("ARRAY<INT>", '"[1, 2]"', [1, 2]),
    ("ARRAY<INT>", "{}", REFUSED),
    ("MAP<STRING,DATE>", '{"a": "2024-05-01", "b": null}', {"a": 19844, "b": None}),
    ("STRUCT<p: DECIMAL(10,2), q: STRING>", '{"q": 1.50, "other": 1}', {"p": None, "q": "1.50"}),
    ("STRUCT<p: INT>", '{"P": 1}', Doubtful({"p": ANY})),
]


@pytest.mark.parametrize(("dtype", "sent", "wanted"), VALUES)
def test_a_value_of_each_type(dtype: str, sent: str, wanted: Any) -> None:
    found = read(dtype, sent)
    if isinstance(wanted, Doubtful) and isinstance(found, Doubtful):
        found, wanted = found.value, wanted.value
    assert found is wanted or same(wanted, found), found
    assert isinstance(found, bool) == isinstance(wanted, bool)


def test_logical_types_and_day_numbers() -> None:
    assert read("TIMESTAMP", "1714557600", "epoch_seconds") == at(2024, 5, 1, 10)
    assert read("TIMESTAMP", "1714557600000", "epoch_millis") == at(2024, 5, 1, 10)
    assert read("TIMESTAMP_NTZ", '"1714557600000000"', "epoch_micros") == at(2024, 5, 1, 10)
    assert read("TIMESTAMP", "-1", "epoch_nanos") == -1
    assert read("TIMESTAMP", "9223372036854775807", "epoch_seconds") is REFUSED
    assert read("TIMESTAMP", '"2024-05-01T10:00:00Z"', "epoch_millis") == at(2024, 5, 1, 10)
    assert read("DECIMAL(12,2)", '"BNI="', "decimal_bytes") == Decimal("12.34")
    assert read("DATE", "19844", day_numbers=True) == 19844
    assert read("DATE", "2147483648", day_numbers=True) is REFUSED


def test_values_of_columnar_files_of_the_declared_type_are_taken_as_they_are() -> None:
    assert read("DATE", Days(19844)) == 19844
    assert read("TIMESTAMP", Instant(5)) == 5
    assert read("DATE", Instant(at(2024, 5, 1, 10))) == 19844
    assert read("FLOAT", Single(0.1)) == 0.1
    assert read("DOUBLE", Single(0.10000000149011612)) == 0.1, "from the text of the number of 32 bits"
    assert read("DOUBLE", math.inf) == math.inf
    assert read("BINARY", b"\xff") == b"\xff"
    assert read("DATE", 20240501) is REFUSED
    assert read("STRING", Decimal("1.50")) == "1.50"
    assert same(read("STRING", 1e10), "1.0E10")


def test_texts_of_objects_are_equal_if_their_values_are() -> None:
    landed = read("STRING", '{"a": [1.10, "\\u00e9"], "b": {}}')
    assert same(landed, '{"a":[1.10,"é"],"b":{}}')
    assert not same(read("STRING", '{"a": null}'), "{}")
    assert not same(landed, '{"a":[1.1,"é"],"b":{}}')


@settings(deadline=None)
@given(st.dates())
def test_days_are_those_of_python(day: date) -> None:
    assert date_of(day.isoformat()) == (day - date(1970, 1, 1)).days
    assert date_text((day - date(1970, 1, 1)).days) == day.isoformat()


@settings(deadline=None)
@given(st.datetimes())
def test_times_are_those_of_python(moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001 - a local time
    assert moment_of(moment.isoformat(), zoned=True) == micros
    written = moment.isoformat()
    assert moment_text(micros) == (written.rstrip("0") if moment.microsecond else written)


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**17), max_value=10**17))
def test_a_decimal_is_exact_or_refused(number: Decimal) -> None:
    found = read("DECIMAL(38,18)", f'"{number}"')
    assert found is REFUSED or found == number
    whole = Fraction(number) * 10**18
    assert found is not REFUSED or whole.denominator != 1 or abs(number) >= 10**20


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=16), st.integers(-5, 20))
def test_bytes_of_a_decimal_are_a_signed_number(raw: bytes, scale: int) -> None:
    found = read("DECIMAL(38,20)", {"scale": str(scale), "value": base64.b64encode(raw).decode()})
    number = int.from_bytes(raw, "big", signed=True)
    assert found is REFUSED or Fraction(found) == Fraction(number) / Fraction(10) ** scale
