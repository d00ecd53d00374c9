"""Texts converted to every type on one engine, as JSON: `python -m tests.sail.texts classic|sail FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fk_pipeline.protocol.hashing import with_row_hash
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings
from fk_pipeline.spec.sql import text

TEXTS = [
    "0",
    "1",
    "-1",
    "+5",
    "12.7",
    "1e3",
    "1E-2",
    "1e400",
    "0x1A",
    "1_000",
    "12abc",
    "NaN",
    "nan",
    "Infinity",
    "-inf",
    "1d",
    "1f",
    "1L",
    ".5",
    "5.",
    "-.5e1",
    "00012",
    "-0",
    "-0.0",
    "127",
    "128",
    "-129",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "12345678901234567890123456789.123",
    "99999999.995",
    "99999999.994",
    "0.005",
    "1.005",
    "-0.005",
    "123456789.1",
    "true",
    "TRUE",
    "t",
    "f",
    "yes",
    "no",
    "y",
    "n",
    "1.0",
    "false",
    "2013-01-31",
    "2013-1-3",
    "2013-02-30",
    "2013",
    "2013-01",
    "2013-13-01",
    "+2013-01-31",
    "-0001-01-01",
    "10000-01-01",
    "2013-01-31T10:00:00",
    "2013-01-31T10:00:00Z",
    "20130131",
    "1582-10-10",
    "2013-01-31T10:00:00.1234567Z",
    "2013-01-31T10:00:00+14:00",
    "2013-01-31T10:00:00+19:00",
    "1500-02-29",
    "2000-02-29",
    "1900-02-29",
    "31/01/2013",
    "--1",
    "1e",
    "e1",
    "1.2.3",
    "1,5",
]
TEXTS += ["", " ", " 7 ", "\t8\n", " true ", "2013-01-31 10:00:00", "2013-01-31 10", "2013-01-31 10:00:00 +02:00"]
TEXTS += [
    "2013-01-31 10:00:00 Europe/Berlin",
    "2013-01-31 24:00:00",
    "2013-01-31 23:59:60",
    "0001-01-01 00:00:00",
    "- 1",
]
TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(10,2)", "DECIMAL(38,0)", "FLOAT", "DOUBLE", "BOOLEAN", "DATE")
TYPES += ("TIMESTAMP", "TIMESTAMP_NTZ")


def main(engine: str, file: str) -> None:
    remote = {"FK_SPARK_REMOTE": "sail"} if engine == "sail" else {}
    spark = start_session(Settings(shuffle_partitions=1, spark={"spark.master": "local[1]"}), remote)
    rows = ", ".join(f"({i}, {text(one)})" for i, one in enumerate(TEXTS))
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(i, v)")
    found: dict[str, str | None] = {}
    for kind in TYPES:
        converted = with_row_hash(frame.selectExpr("i", f"TRY_CAST(v AS {kind}) AS v"), "hash", ["v"], "v IS NULL")
        for row in converted.selectExpr("i", "HEX(hash) AS hash").collect():
            found[f"{TEXTS[row['i']]} as {kind}"] = row["hash"]
    Path(file).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
