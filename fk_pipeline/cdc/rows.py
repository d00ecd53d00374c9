"""Plain rows as JSON lines: each line is a row and replaces the one with its key (`docs/reference/rows.md`).

With `op_column`, that field names the operation of a line by one of the words in `records.WORDS`, which write the row,
remove it, or remove every row. Order: `sequence_by`, else order of arrival.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.cdc.json_lines import exact
from fk_pipeline.cdc.json_names import as_declared, named_objects, value_alike
from fk_pipeline.cdc.records import (
    ARRIVAL,
    ARRIVAL_TYPE,
    NO_OBJECT,
    TRIMMED,
    JsonLines,
    computed_once,
    fields_of_texts,
    old_image,
    operation_of,
    operation_problem,
    records,
    rounded,
    typed_row,
    unusable,
)
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import text

_WORD = "_fk_word"
"""The field, beside the declared columns, with the word that names the operation of a line."""


class Rows(JsonLines):
    """The format `rows`: one JSON object per line."""

    sequence_type = ARRIVAL_TYPE
    sends_all = False

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """Returns one record per line; see `fk_pipeline.cdc.records`."""
        declared = {c.name.lower(): c.name for c in side.columns}
        named = side.op_column and declared.get(side.op_column.lower(), side.op_column)
        names = list(dict.fromkeys([*declared.values(), *([named] if named else [])]))
        read = {name: exact(f"COALESCE(_record.{quote(name)}, {value_alike(name)})") for name in names}
        word = read[named] if named else "'u'"
        sent = ", ".join([*(f"{read[c.name]} AS {c.quoted}" for c in side.columns), f"{word} AS {_WORD}"])
        texts, word = {c.name: f"_texts.{c.quoted}" for c in side.columns}, f"_texts.{_WORD}"
        problem = operation_problem(side, side.op_column, word, unusable(side, texts, "row"))
        bad = f"IF(_record IS NULL OR NOT _fits, {NO_OBJECT}, {problem})"
        fields = as_declared(names)
        if named and side.column(named) is None:
            fields = f"ARRAY_REMOVE({fields}, {text(named)})"
        place = [f"`{name}`" for name in lines.columns]
        return (
            named_objects(lines, fields_of_texts({*names}), names)
            .selectExpr("*", f"{computed_once(sent)} AS _texts")
            .selectExpr("*", f"{operation_of(word, side)} AS op")
            .selectExpr("*", f"{typed_row(side, texts)} AS row")
            .selectExpr("*", "op IN ('d', 't') AS deleted")
            .selectExpr("*", f"IF({TRIMMED} = '', 'empty line', {old_image('op')}) AS _ignored", f"{bad} AS _bad")
            .selectExpr(*records(place, ARRIVAL), f"{rounded(side, texts, 'row')} AS rounded", f"{fields} AS fields")
        )
