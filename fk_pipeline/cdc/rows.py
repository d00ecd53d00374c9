"""Plain rows as JSON lines: each line is a row and replaces the one with its key (`docs/reference/rows.md`).

With `op_column`, that field names the operation of a line by one of the words in `records.WORDS`, which write the row,
remove it, or remove every row. Order: `sequence_by`, else order of arrival.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.cdc.json_lines import DIGEST, digest, exact, fits, parsed, value_of, wrapped
from fk_pipeline.cdc.records import (
    ARRIVAL,
    ARRIVAL_TYPE,
    NO_OBJECT,
    TRIMMED,
    JsonLines,
    computed_once,
    fields_of_texts,
    misfit,
    missing_key,
    old_image,
    operation_of,
    operation_problem,
    records,
    rounded,
    typed_row,
)
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import text


class Rows(JsonLines):
    """The format `rows`: one JSON object per line."""

    sequence_type = ARRIVAL_TYPE
    sends_all = False

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """Returns one record per line; see `fk_pipeline.cdc.records`."""
        names = {c.name for c in side.columns} | ({side.op_column} if side.op_column else set())
        word = f"_record.{quote(side.op_column)}" if side.op_column else "'u'"
        sent = ", ".join(f"{exact(f'_record.{c.quoted}')} AS {c.quoted}" for c in side.columns)
        texts = {c.name: f"_texts.{c.quoted}" for c in side.columns}
        problem = operation_problem(side, side.op_column, word, misfit(side, texts, "row"), missing_key(side, "row"))
        bad = f"IF(_record IS NULL OR NOT _fits, {NO_OBJECT}, {problem})"
        fields = f"ARRAY_REMOVE(JSON_OBJECT_KEYS(value), {text(side.op_column or '')})"
        place = [f"`{name}`" for name in lines.columns]
        return (
            lines.selectExpr(*place, f"{digest('value')} AS {DIGEST}")
            .selectExpr("*", f"{parsed(wrapped('value'), fields_of_texts(names))} AS _parsed")
            .selectExpr(*place, DIGEST, f"{value_of('_parsed')} AS _record", f"{fits('_parsed')} AS _fits")
            .selectExpr("*", f"{operation_of(word)} AS op", f"{computed_once(sent)} AS _texts")
            .selectExpr("*", f"{typed_row(side, texts)} AS row")
            .selectExpr("*", "op IN ('d', 't') AS deleted")
            .selectExpr("*", f"IF({TRIMMED} = '', 'empty line', {old_image('op')}) AS _ignored", f"{bad} AS _bad")
            .selectExpr(*records(place, ARRIVAL), f"{rounded(side, texts, 'row')} AS rounded", f"{fields} AS fields")
        )
