"""Debezium change events as JSON lines (`docs/reference/debezium.md`).

Three shapes, recognised per line, each with or without `{"schema", "payload"}` around key and value:
(a) an exported record `{"topic", "key", "value", "headers"}`, whose key columns come from `key` and whose value is one
of the other two;
(b) the bare envelope `{"before", "after", "source", "op"}`, whose key columns come from the row;
(c) the flattened row with `__op` or `__deleted` (`ExtractNewRecordState`), whose key columns come from the row.

Order: for PostgreSQL `source.sequence`, the pair (last commit position, position); a snapshot read has no commit
position and precedes everything. Without that pair `source.lsn`, in flattened rows with snapshot reads first. For MySQL
and MariaDB the binlog's file and position, for Oracle `commit_scn` (of a snapshot read its `scn`) and `scn`, for SQL
Server `commit_lsn`. Without any of these, the position in the landing files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from fk_pipeline.cdc.debezium_shapes import (
    COMMIT_TIMES,
    ENVELOPE,
    SHAPED,
    flat_row,
    image,
    path_of_image,
    path_of_row,
    schema_of,
)
from fk_pipeline.cdc.json_lines import (
    DIGEST,
    WRAPPED,
    digest,
    exact,
    half_pair,
    is_one,
    not_object,
    parsed,
    value_of,
    wrapped,
)
from fk_pipeline.cdc.json_names import (
    ALIKE,
    NAMES,
    as_declared,
    differ,
    fields_at,
    fields_of,
    named_values,
    names_at,
    value_alike,
)
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
    typed_key,
    typed_row,
    unknown,
    unusable,
)
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.inputs import EVENT_COLUMN
from fk_pipeline.spec.sql import text

UNAVAILABLE = "__debezium_unavailable_value"
"""The unavailable value: Debezium's placeholder for a large value that an update did not change and PostgreSQL
therefore did not send."""

_BYTES = base64.b64encode(UNAVAILABLE.encode()).decode()
_UUID = uuid.UUID(bytes=hashlib.md5(UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3)
_NOT_SENT = ", ".join(
    text(form)
    for form in (
        UNAVAILABLE,
        _BYTES,
        *(f'["{one}"]' for one in (UNAVAILABLE, _BYTES, _UUID)),
        json.dumps(list(UNAVAILABLE.encode()), separators=(",", ":")),
        json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":")),
    )
)
"""SQL of the texts that stand for an unavailable value: as a text and as bytes; as an array of texts, of bytes, of
UUIDs and of integers; as an hstore."""


class Debezium(JsonLines):
    """The format `debezium`, with all three shapes."""

    sequence_type = "STRUCT<commit: BIGINT, position: BIGINT>"
    has_holes = True
    precedes: str | None = "op = 'r' AND sequence.commit = 0 AND sequence.position <> 0"

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """Returns one record per line, two if an update changes the key; see `fk_pipeline.cdc.records`."""
        names = [c.name for c in side.columns]
        read = {c.name: exact(f"COALESCE(_image.{c.quoted}, {value_alike(c.name)})") for c in side.columns}
        read |= {c.name: f"COALESCE({exact(value_alike(c.name, '_key'))}, {read[c.name]})" for c in side.key_columns}
        moves = _moves(side, read)
        read |= {c.name: f"IF(_before, _old.{c.quoted}, {read[c.name]})" for c in side.key_columns}
        sent_as = ", ".join(f"{read[c.name]} AS {c.quoted}" for c in side.columns)
        sent = {c.name: f"_sent.{c.quoted}" for c in side.columns}
        there = ", ".join(f"IF({sql} IN ({_NOT_SENT}), NULL, {sql}) AS {quote(name)}" for name, sql in sent.items())
        texts = {c.name: f"_texts.{c.quoted}" for c in side.columns}
        place = [f"`{name}`" for name in lines.columns]
        read_lines = (
            lines.selectExpr(*place, f"{digest('value')} AS {DIGEST}")
            .selectExpr("*", f"{wrapped('value')} AS {WRAPPED}")
            .selectExpr("*", f"{parsed(WRAPPED, schema_of(side))} AS _parsed")
            .selectExpr(
                *place,
                DIGEST,
                WRAPPED,
                f"{value_of('_parsed')} AS _record",
                f"{is_one('_parsed')} AND NOT {half_pair('value')} AS _is_one",
                "_parsed._corrupt IS NOT NULL AS _misshapen",
            )
        )
        return (
            _with_keys(read_lines, side)
            .selectExpr("*", f"{flat_row(side)} AS _flat")
            .selectExpr("*", f"IF(_flat IS NULL, {ENVELOPE}, NULL) AS _envelope")
            .selectExpr("*", f"{_OP} AS _op")
            .selectExpr("*", f"{path_of_row()} AS _at", f"{image(side)} AS _image")
            .selectExpr("*", f"{names_at('_at')} AS {NAMES}")
            .selectExpr("*", f"{differ(NAMES, names)} AS _differ")
            .selectExpr(
                "*",
                f"IF(_differ, {fields_at('_at')}, NULL) AS {ALIKE}",
                f"IF(_differ AND _op = 'u', {fields_at(path_of_image('before'))}, NULL) AS _old_alike",
            )
            .selectExpr("*", f"{_old(side)} AS _old")
            .selectExpr("*", f"EXPLODE(IF({moves}, ARRAY(TRUE, FALSE), ARRAY(CAST(NULL AS BOOLEAN)))) AS _before")
            .selectExpr("*", "IF(_before, 'd', _op) AS op")
            .selectExpr("*", "op IN ('d', 't') AS deleted", f"{computed_once(sent_as)} AS _sent")
            .selectExpr("*", f"{computed_once(there)} AS _texts")
            .selectExpr("*", f"{typed_row(side, texts)} AS row")
            .selectExpr("*", f"{_ignored(side)} AS _ignored", f"{_bad(side, texts)} AS _bad")
            .selectExpr(
                *records(place, _SEQUENCE),
                *committed(
                    side, f"IF(_flat IS NULL, {_committed('_envelope.source.')}, {_committed('_flat.__source_')})"
                ),
                f"{rounded(side, texts, 'row')} AS rounded",
                f"{_blind(side)} AS blind",
                f"{_holes(side, sent)} AS holes",
                f"{_renamed(side)} AS old_key",
                f"IF(deleted, NULL, {_fields(names)}) AS fields",
            )
        )


_OP = "LOWER(IF(_flat IS NULL, _envelope.op, IF(_flat.__deleted = 'true', 'd', COALESCE(_flat.__op, 'u'))))"

_OLD_KEY = "__debezium.oldkey"
"""The header with the earlier key of a row. Some tools write headers as a list, or not at all."""


def _ignored(side: SideSpec) -> str:
    """SQL (STRING): the reason why a line is ignored; null if it is not."""
    others = [
        of_another_table(side, f"{of}table", [f"{of}schema", f"{of}db", f"CONCAT({of}db, '.', {of}schema)"])
        for of in ("_flat.__source_", "_envelope.source.")
    ]
    return (
        f"CASE WHEN {TRIMMED} IN ('', 'null') THEN 'empty line' "
        f"WHEN {' OR '.join(others)} THEN '{OTHER_TABLE}' "
        "WHEN _flat IS NOT NULL OR NOT _is_one OR _misshapen THEN NULL "
        "WHEN op = 'm' THEN 'logical message' "
        "WHEN _envelope.status IN ('BEGIN', 'END') THEN 'transaction record' "
        "WHEN _envelope IS NULL AND (_record.key IS NOT NULL OR _record.topic IS NOT NULL) AND _record.value IS NULL "
        "THEN 'tombstone line' END"
    )


def _order(of: str, commit: str) -> str:
    """SQL (STRUCT): (commit, position) from the fields of `source`; 0 where the source has no value.

    Args:
        of: the text before the name of a field.
        commit: SQL of the commit to use where only PostgreSQL's position is known.
    """
    pair = f"FROM_JSON({of}sequence, 'ARRAY<STRING>')"
    binlog = f"TRY_CAST(REGEXP_EXTRACT({of}file, '([0-9]+)$', 1) AS BIGINT)"
    lsn = [f"CAST(CONV(SPLIT_PART({of}commit_lsn, ':', {i}), 16, 10) AS BIGINT)" for i in (1, 2, 3)]
    commits = [
        f"TRY_CAST(GET({pair}, 0) AS BIGINT)",
        binlog,
        f"TRY_CAST(COALESCE({of}commit_scn, {of}scn) AS BIGINT)",
        f"IF({of}commit_lsn RLIKE '{_SQL_SERVER}', SHIFTLEFT({lsn[0]}, 32) + {lsn[1]}, NULL)",
        commit,
    ]
    positions = [
        f"TRY_CAST(GET({pair}, 1) AS BIGINT)",
        f"TRY_CAST({of}lsn AS BIGINT)",
        f"TRY_CAST({of}pos AS BIGINT)",
        f"TRY_CAST({of}scn AS BIGINT)",
        f"IF({of}commit_lsn RLIKE '{_SQL_SERVER}', {lsn[2]}, NULL)",
        "0L",
    ]
    return f"STRUCT(COALESCE({', '.join(commits)}) AS commit, COALESCE({', '.join(positions)}) AS position)"


def _committed(of: str) -> str:
    """SQL (TIMESTAMP): the time of the commit from the fields of `source`; `of` is the text before their names."""
    micros, nanos, millis = (f"TRY_CAST({of}{name} AS BIGINT)" for name in COMMIT_TIMES)
    return f"TIMESTAMP_MICROS(COALESCE({micros}, {nanos} DIV 1000, {millis} * 1000))"


_SQL_SERVER = "^[0-7][0-9a-fA-F]{7}:[0-9a-fA-F]{8}:[0-9a-fA-F]{4}$"
"""Pattern of a log sequence number of SQL Server: virtual log file, block and slot."""

_SEQUENCE = "IF(_flat IS NULL, {}, {})".format(
    _order("_envelope.source.", "0L"),
    _order(
        "_flat.__source_",
        "IF(_flat.__source_sequence IS NOT NULL OR _flat.__source_lsn IS NULL OR op = 'r', 0L, 1L)",
    ),
)


def _with_keys(lines: DataFrame, side: SideSpec) -> DataFrame:
    """Adds `_key` and `_old_key` to lines: the fields (see `named_values`) of the message key and of the old key.

    A key is taken out of `{"schema", "payload"}` if necessary, and each may also be a text that holds the JSON. The
    columns are computed step by step, because Spark repeats a computation that an expression names twice. Without key
    columns nothing is added.
    """
    if not side.key_columns:
        return lines
    keys = ("_key", "_old_key")
    old = value_of(parsed(wrapped("_headers"), f"{quote(_OLD_KEY)}: STRING"))
    of_message = "_fits{0} AND _outer{0}.schema IS NOT NULL AND _outer{0}.payload LIKE '{{%'"
    return (
        lines.selectExpr("*", f"{exact('_record.key')} AS _text_key", f"{exact('_record.headers')} AS _headers")
        .selectExpr("*", f"{exact(f'{old}.{quote(_OLD_KEY)}')} AS _text_old_key")
        .selectExpr("*", *[f"{parsed(wrapped(f'_text{k}'), 'schema: STRING, payload: STRING')} AS _p{k}" for k in keys])
        .selectExpr(
            "*",
            *[f"{value_of(f'_p{k}')} AS _outer{k}" for k in keys],
            *[f"{is_one(f'_p{k}')} AS _fits{k}" for k in keys],
        )
        .selectExpr(
            "*",
            *[f"IF({of_message.format(k)}, {exact(f'_outer{k}.payload')}, _text{k}) AS _inner{k}" for k in keys],
        )
        .selectExpr("*", *[f"{fields_of(wrapped(f'_inner{k}'))} AS _read{k}" for k in keys])
        .selectExpr(
            "*", *[f"IF({is_one(f'_read{k}')}, {named_values(value_of(f'_read{k}'))}, NULL) AS {k}" for k in keys]
        )
    )


def _holes(side: SideSpec, sent: Mapping[str, str]) -> str:
    """SQL (ARRAY<STRING>): the columns with an unavailable value; null if the source sent all values."""
    columns = ", ".join(f"IF({sent[c.name]} IN ({_NOT_SENT}), {text(c.name)}, NULL)" for c in side.value_columns)
    found = f"FILTER(CAST(ARRAY({columns}) AS ARRAY<STRING>), _name -> _name IS NOT NULL)"
    return f"IF(deleted OR SIZE({found}) = 0, NULL, {found})"


def _fields(names: Sequence[str]) -> str:
    """SQL (ARRAY<STRING>): the names in the row of a line's event, without the names that flattening adds."""
    sent, declared = as_declared(names), ", ".join(map(text, names))
    own = f"FILTER({sent}, _name -> NOT STARTSWITH(_name, '__') OR _name IN ({declared}))"
    return f"IF(_flat IS NULL, {sent}, {own})"


def _old(side: SideSpec) -> str:
    """SQL (STRUCT of texts): the key in the old image of a line's event."""
    found = {c.quoted: f"_envelope.before.{c.quoted}, {value_alike(c.name, '_old_alike')}" for c in side.key_columns}
    texts = ", ".join(f"{exact(f'COALESCE({sql})')} AS {name}" for name, sql in found.items())
    return f"STRUCT({texts})" if texts else "NULL"


def _moves(side: SideSpec, new: Mapping[str, str]) -> str:
    """SQL (BOOLEAN): an update changes the key, which is not the source's primary key: that arrives as `d` and `c`.

    Args:
        side: the side of the line.
        new: per column, SQL of the text that the update wrote.
    """
    old = {c.name: f"_old.{c.quoted}" for c in side.key_columns}
    if not old:
        return "FALSE"
    known = " AND ".join(f"{sql} IS NOT NULL" for sql in old.values())
    other = " OR ".join(f"{sql} <> {new[name]}" for name, sql in old.items())
    differs = f"NOT ({typed_key(side, old)} <=> {typed_key(side, new)})"
    return f"(_flat IS NULL AND _op = 'u' AND {known} AND ({other}) AND {differs})"


def _blind(side: SideSpec) -> str:
    """SQL (BOOLEAN): an update may change the key and does not tell: the key of its message is another one."""
    if not side.key_columns:
        return "FALSE"
    other = " OR ".join(f"NOT ARRAY_CONTAINS(_key.names, {text(c.name.lower())})" for c in side.key_columns)
    unknown = " OR ".join(f"_old.{c.quoted} IS NULL" for c in side.key_columns)
    wrapped_key = "ARRAY_CONTAINS(_key.names, 'payload')"  # of a value that is no object
    of_columns = f"_key.values IS NOT NULL AND NOT {wrapped_key}"
    return f"COALESCE(op = 'u' AND {of_columns} AND ({other}) AND ({unknown}), FALSE)"


def _renamed(side: SideSpec) -> str:
    """SQL (STRUCT): the key that the row had before this event changed it; null if it did not."""
    if not side.key_columns:
        return f"CAST(NULL AS STRUCT<{EVENT_COLUMN.quoted}: {EVENT_COLUMN.type}>)"
    texts = {c.name: exact(value_alike(c.name, "_old_key")) for c in side.key_columns}
    there = " AND ".join(f"{old} IS NOT NULL" for old in texts.values())
    old = typed_key(side, {c.name: f"_old.{c.quoted}" for c in side.key_columns})
    return f"CASE WHEN {there} THEN {typed_key(side, texts)} WHEN NOT _before THEN {old} END"


def _bad(side: SideSpec, texts: Mapping[str, str]) -> str:
    """SQL (STRING): the reason why a line cannot be applied; null if it can."""
    return (
        f"CASE WHEN NOT _is_one THEN {NO_OBJECT} WHEN _flat IS NULL AND _misshapen "
        f"THEN COALESCE({not_object(SHAPED)}, 'of another shape than a change event') "
        "WHEN op IS NULL THEN 'not a Debezium change event: it has no op' "
        f"WHEN op NOT IN ('c', 'u', 'r', 'd', 't') THEN {unknown(side, 'op', 'op')} "
        "WHEN op = 't' THEN NULL "
        "WHEN NOT deleted AND _flat IS NULL AND _envelope.after IS NULL "
        "THEN CONCAT('op ', op, ' without a row in after') "
        f"ELSE {unusable(side, texts, 'row')} END"
    )
