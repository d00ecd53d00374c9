"""Debezium change events as JSON lines (`docs/reference/debezium.md`).

Two shapes, told apart per line, each with or without `{"schema", "payload"}` around key and value:
(a) an exported record `{"topic", "key", "value", "headers"}`, whose key columns come from `key`;
(b) the bare envelope `{"before", "after", "source", "op"}`, whose key columns come from the row.

Order: `source.sequence` of PostgreSQL, the pair (last commit position, position); a snapshot read has no commit
position and precedes everything. Without it, `source.lsn`; without either, the place in the landing files.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.cdc.records import (
    PARSE_OPTIONS,
    TRIMMED,
    JsonLines,
    fields_of_texts,
    misfit,
    missing_key,
    records,
    struct_of_texts,
    typed_row,
)
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.sql import text

UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a large value that an update did not change and PostgreSQL therefore did not send."""

NOT_SENT = "the source did not send column"
"""How the reason begins for which a record with such a value is in the quarantine."""


class Debezium(JsonLines):
    """Reads the envelope shapes (a) and (b)."""

    name = "debezium"
    sequence_type = "STRUCT<commit: BIGINT, position: BIGINT>"

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """One row per line; see `fk_pipeline.cdc.records`."""
        keys = {c.name for c in side.key_columns}
        texts = {
            c.name: f"COALESCE(_key.{c.quoted}, _image.{c.quoted})" if c.name in keys else f"_image.{c.quoted}"
            for c in side.columns
        }
        hole = ", ".join(f"IF({texts[c.name]} = {text(UNAVAILABLE)}, {text(c.name)}, NULL)" for c in side.columns)
        place = [f"`{name}`" for name in lines.columns]
        return (
            lines.selectExpr(*place, f"FROM_JSON(value, {text(_schema(side))}, {PARSE_OPTIONS}) AS _record")
            .selectExpr(*place, "_record", f"{_ENVELOPE} AS _envelope", f"{_key(side)} AS _key")
            .selectExpr(
                "*",
                "_envelope.op AS op",
                "_envelope.op IN ('d', 't') AS deleted",
                "IF(_envelope.op = 'd', _envelope.before, _envelope.after) AS _image",
            )
            .selectExpr("*", f"{typed_row(side, texts)} AS row")
            .selectExpr("*", f"{_IGNORED} AS _ignored", f"{_bad(side, texts, hole)} AS _bad")
            .selectExpr(*records(place, _SEQUENCE))
        )


_ENVELOPE_FIELDS = ("before", "after", "op", "status", "source")
_PLACES = ("_record.value.payload", "_record.value", "_record.payload", "_record")
_ENVELOPE = "COALESCE({})".format(
    ", ".join(
        f"IF({place}.op IS NOT NULL OR {place}.status IS NOT NULL, "
        f"STRUCT({', '.join(f'{place}.{name} AS {name}' for name in _ENVELOPE_FIELDS)}), NULL)"
        for place in _PLACES
    )
)
"""The envelope of a line, wherever its shape puts it; null for a tombstone line."""

_IGNORED = (
    f"CASE WHEN {TRIMMED} IN ('', 'null') THEN 'empty line' "
    "WHEN _record._corrupt IS NOT NULL THEN NULL "
    "WHEN op = 'm' THEN 'logical message' "
    "WHEN _envelope.status IN ('BEGIN', 'END') THEN 'transaction record' "
    "WHEN _envelope IS NULL AND (_record.key IS NOT NULL OR _record.topic IS NOT NULL) AND _record.value IS NULL "
    "THEN 'tombstone line' END"
)

_SEQUENCE = (
    "STRUCT(COALESCE(TRY_CAST(GET(FROM_JSON(_envelope.source.sequence, 'ARRAY<STRING>'), 0) AS BIGINT), 0L) AS commit, "
    "COALESCE(TRY_CAST(GET(FROM_JSON(_envelope.source.sequence, 'ARRAY<STRING>'), 1) AS BIGINT), "
    "TRY_CAST(_envelope.source.lsn AS BIGINT), 0L) AS position)"
)
"""(commit, position); 0 where the source says nothing."""


def _schema(side: SideSpec) -> str:
    """Every shape at once; a line fills the fields of its own."""
    image = struct_of_texts(side.columns)
    envelope = (
        f"before: {image}, after: {image}, op: STRING, status: STRING, source: STRUCT<sequence: STRING, lsn: STRING>"
    )
    return (
        f"STRUCT<topic: STRING, key: STRING, value: STRUCT<{envelope}, payload: STRUCT<{envelope}>>, "
        f"{envelope}, payload: STRUCT<{envelope}>, _corrupt: STRING>"
    )


def _key(side: SideSpec) -> str:
    """SQL (STRUCT of texts): the key columns of a message key, taken out of `{"schema", "payload"}` if need be."""
    outer = "FROM_JSON(_record.key, 'STRUCT<schema: STRING, payload: STRING>')"
    inner = f"IF({outer}.schema IS NOT NULL AND {outer}.payload LIKE '{{%', {outer}.payload, _record.key)"
    return f"FROM_JSON({inner}, {text(f'STRUCT<{fields_of_texts({c.name for c in side.key_columns})}>')})"


def _bad(side: SideSpec, texts: dict[str, str], hole: str) -> str:
    """SQL (STRING): why a line cannot be applied; null when it can."""
    return (
        "CASE WHEN _record._corrupt IS NOT NULL THEN 'not a JSON object that fits a change event' "
        "WHEN op IS NULL THEN 'not a Debezium change event: it has no op' "
        "WHEN op NOT IN ('c', 'u', 'r', 'd', 't') THEN CONCAT('unknown op ', op) "
        "WHEN op = 't' THEN NULL "
        "WHEN NOT deleted AND _envelope.after IS NULL THEN CONCAT('op ', op, ' without a row in after') "
        f"WHEN NOT deleted AND COALESCE({hole}) IS NOT NULL "
        f"THEN CONCAT('{NOT_SENT} ', COALESCE({hole})) "
        f"ELSE COALESCE(IF(deleted, NULL, {misfit(side, texts, 'row')}), {missing_key(side, 'row')}) END"
    )
