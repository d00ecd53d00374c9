"""Rows of MySQL as Maxwell's daemon writes them, one JSON object per line (`docs/reference/maxwell.md`).

`insert`, `bootstrap-insert` and `update` write the row in `data`, `delete` removes it; an update that changes the key
also removes the row with the key in `old`. Order: `position` (binlog file and offset), without it the number in `gtid`,
then `xoffset`; without either, the position in the landing files.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.cdc.json_lines import exact, not_object
from fk_pipeline.cdc.json_names import ALIKE, as_declared, fields_at, named_objects, value_alike
from fk_pipeline.cdc.records import (
    NO_OBJECT,
    OTHER_TABLE,
    TRIMMED,
    JsonLines,
    committed,
    computed_once,
    of_another_table,
    records,
    rounded,
    struct_of_texts,
    typed_key,
    typed_row,
    unknown,
    unusable,
)
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.sql import text

_TYPE = "LOWER(_record.type)"
_OPS = "MAP('insert', 'c', 'bootstrap-insert', 'r', 'update', 'u', 'delete', 'd')"
_WITHOUT_ROW = (
    "bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop", "table-rename",
    "database-create", "database-alter", "database-drop",
)  # fmt: skip
_POSITION = (
    "COALESCE(TRY_CAST(SPLIT_PART(_record.position, ':', -1) AS BIGINT), "
    "TRY_CAST(REGEXP_EXTRACT(_record.gtid, '([0-9]+)$', 1) AS BIGINT))"
)
_SEQUENCE = (
    "STRUCT(COALESCE(TRY_CAST(REGEXP_EXTRACT(_record.position, '([0-9]+):[0-9]+$', 1) AS BIGINT), 0L) AS file, "
    f"COALESCE({_POSITION}, 0L) AS position, "
    f"COALESCE(IF({_POSITION} IS NULL, NULL, TRY_CAST(_record.xoffset AS BIGINT)), 0L) AS offset)"
)


_DATA, _BEFORE = "'$.data'", "'$.old'"
"""SQL of the paths to the row and to its old values."""

_OLD = "_old_alike"
"""The column with the fields of `old`, as `ALIKE` has those of `data`."""


class Maxwell(JsonLines):
    """The format `maxwell`: one JSON object per line."""

    sequence_type = "STRUCT<file: BIGINT, position: BIGINT, offset: BIGINT>"
    precedes: str | None = "IF(sequence.file <> 0 OR sequence.position <> 0, FALSE, IF(op = 'r', TRUE, NULL))"

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """Returns one record per line, two if an update changes the key; see `fk_pipeline.cdc.records`."""
        row = struct_of_texts(side.columns)
        schema = (
            "type: STRING, database: STRING, table: STRING, ts: STRING, position: STRING, gtid: STRING, "
            "xoffset: STRING, "
            f"data: {row}, old: {row}"
        )
        names = [c.name for c in side.columns]
        texts = {c.name: exact(f"COALESCE(_record.data.{c.quoted}, {value_alike(c.name)})") for c in side.columns}
        before = {c.name: f"_record.old.{c.quoted}, {value_alike(c.name, _OLD)}" for c in side.key_columns}
        old = {name: f"COALESCE({exact(f'COALESCE({sql})')}, {texts[name]})" for name, sql in before.items()}
        new = typed_key(side, texts)
        whole = " AND ".join(f"{new}.{c.quoted} IS NOT NULL" for c in side.key_columns)
        renamed = f"{_TYPE} = 'update' AND {whole} AND NOT ({typed_key(side, old)} <=> {new})" if whole else "FALSE"
        sent = {name: f"IF(_before, {old[name]}, {sql})" if name in old else sql for name, sql in texts.items()}
        sent_as = ", ".join(f"{sent[c.name]} AS {c.quoted}" for c in side.columns)
        texts = {c.name: f"_texts.{c.quoted}" for c in side.columns}
        without_row = ", ".join(map(text, _WITHOUT_ROW))
        bad = (
            f"CASE WHEN NOT _fits THEN COALESCE(IF(_is_one, {not_object(('data', 'old'))}, NULL), {NO_OBJECT}) "
            "WHEN _record.type IS NULL THEN 'not a row of Maxwell: it has no type' "
            f"WHEN op IS NULL THEN {unknown(side, 'type', 'SUBSTRING(_record.type, 1, 80)')} "
            "WHEN _record.data IS NULL THEN CONCAT('type ', _record.type, ' without data') "
            f"ELSE {unusable(side, texts, 'row')} END"
        )
        ignored = (
            f"CASE WHEN {TRIMMED} IN ('', 'null') THEN 'empty line' "
            f"WHEN {_TYPE} IN ({without_row}) THEN 'no row' "
            f"WHEN {of_another_table(side, '_record.table', ['_record.database'])} THEN '{OTHER_TABLE}' END"
        )
        place = [f"`{name}`" for name in lines.columns]
        return (
            named_objects(lines, schema, names, _DATA)
            .selectExpr("*", f"IF({ALIKE} IS NULL, NULL, {fields_at(_BEFORE)}) AS {_OLD}")
            .selectExpr("*", f"EXPLODE(IF({renamed}, ARRAY(TRUE, FALSE), ARRAY(FALSE))) AS _before")
            .selectExpr("*", f"IF(_before, 'd', {_OPS}[{_TYPE}]) AS op")
            .selectExpr("*", "op = 'd' AS deleted", f"{computed_once(sent_as)} AS _texts")
            .selectExpr("*", f"{typed_row(side, texts)} AS row")
            .selectExpr("*", f"{ignored} AS _ignored", f"{bad} AS _bad")
            .selectExpr(
                *records(place, _SEQUENCE),
                *committed(side, "TIMESTAMP_SECONDS(TRY_CAST(_record.ts AS BIGINT))"),
                f"{rounded(side, texts, 'row')} AS rounded",
                f"{as_declared(names)} AS fields",
            )
        )
