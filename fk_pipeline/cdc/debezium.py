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
from itertools import zip_longest

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
    source,
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
        *(f'["{element}"]' for element in (UNAVAILABLE, _BYTES, _UUID)),
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
        read = {c.name: exact(f"_raw.{c.quoted}") for c in side.columns}
        moves = _moves(side, read)
        read |= {c.name: f"IF(_before, _old.{c.quoted}, {read[c.name]})" for c in side.key_columns}
        sent_as = ", ".join(f"{read[c.name]} AS {c.quoted}" for c in side.columns)
        sent = {c.name: f"_sent.{c.quoted}" for c in side.columns}
        available = ", ".join(f"IF({sql} IN ({_NOT_SENT}), NULL, {sql}) AS {quote(name)}" for name, sql in sent.items())
        texts = {c.name: f"_texts.{c.quoted}" for c in side.columns}
        place = [f"`{name}`" for name in lines.columns]
        return (
            _with_events(lines, side)
            .selectExpr("*", f"{_old(side)} AS _old")
            .selectExpr("*", f"EXPLODE(IF({moves}, ARRAY(TRUE, FALSE), ARRAY(CAST(NULL AS BOOLEAN)))) AS _before")
            .selectExpr(
                "*",
                "IF(_before, 'd', _op) AS op",
                "IF(_before, TRUE, _op IN ('d', 't')) AS deleted",
                f"{computed_once(sent_as)} AS _sent",
            )
            .selectExpr("*", f"{computed_once(available)} AS _texts")
            .selectExpr("*", f"{typed_row(side, texts)} AS row")
            .selectExpr("*", f"{_ignored(side)} AS _ignored", f"{_bad(side, texts)} AS _bad")
            .selectExpr(
                *records(place, _SEQUENCE),
                *committed(side, _COMMITTED),
                f"{rounded(side, texts, 'row')} AS rounded",
                f"{_blind(side)} AS blind",
                f"{_holes(side)} AS holes",
                f"{_renamed(side)} AS old_key",
                f"IF(deleted, NULL, {_fields(names)}) AS fields",
            )
        )


def _with_events(lines: DataFrame, side: SideSpec) -> DataFrame:
    """Adds what each line has of an event: its shapes, `_op`, `_source`, `NAMES` and `ALIKE` of its row, and `_raw`.

    `_raw` (STRUCT of texts) is the row, with the key of the message if it has one; texts have the marks of a line. Each
    step computes what the next ones read more than once, because Spark repeats a computation that an expression names
    twice. The steps of the key and those of the value are made together: each costs time in every batch.
    """
    names = [c.name for c in side.columns]
    of_keys = _steps_of_keys(side)
    of_event = [
        [f"{flat_row(side)} AS _flat"],
        [f"IF(_flat IS NULL, {ENVELOPE}, NULL) AS _envelope"],
        [f"{_OP} AS _op", f"{source()} AS _source", f"{path_of_row()} AS _at", f"{image(side)} AS _image"],
        [f"{names_at('_at')} AS {NAMES}"],
        [f"IF({differ(NAMES, names)}, {fields_at('_at')}, NULL) AS {ALIKE}"],
    ]
    keys = {c.name: f"{value_alike(c.name, '_key')}, " for c in side.key_columns}
    raw = (f"COALESCE({keys.get(c.name, '')}_image.{c.quoted}, {value_alike(c.name)})" for c in side.columns)
    raw_as = ", ".join(f"{sql} AS {c.quoted}" for sql, c in zip(raw, side.columns, strict=True))
    before = fields_at(path_of_image("before"))
    last = [f"IF({ALIKE} IS NOT NULL AND _op = 'u', {before}, NULL) AS _old_alike", f"{computed_once(raw_as)} AS _raw"]
    place = [f"`{name}`" for name in lines.columns]
    record = value_of("_parsed")
    read = (
        lines.selectExpr(*place, f"{digest('value')} AS {DIGEST}")
        .selectExpr("*", f"{wrapped('value')} AS {WRAPPED}")
        .selectExpr("*", f"{parsed(WRAPPED, schema_of(side))} AS _parsed")
        .selectExpr(
            *place,
            DIGEST,
            WRAPPED,
            f"{record} AS _record",
            f"{is_one('_parsed')} AND NOT {half_pair('value')} AS _is_one",
            "_parsed._corrupt IS NOT NULL AS _misshapen",
            *(
                [f"{exact(f'{record}.key')} AS _text_key", f"{exact(f'{record}.headers')} AS _headers"]
                if of_keys
                else []
            ),
        )
    )
    nothing: list[str] = []
    for step, other in zip_longest(of_event, of_keys, fillvalue=nothing):
        read = read.selectExpr("*", *step, *other)
    return read.selectExpr("*", *last)


_OP = "LOWER(IF(_flat IS NULL, _envelope.op, IF(_flat.__deleted = 'true', 'd', COALESCE(_flat.__op, 'u'))))"

_OLD_KEY = "__debezium.oldkey"
"""The header with the earlier key of a row. Some tools write headers as a list, or not at all."""


def _ignored(side: SideSpec) -> str:
    """SQL (STRING): the reason why a line is ignored; null if it is not."""
    of = "_source."
    other = of_another_table(side, f"{of}table", [f"{of}schema", f"{of}db", f"CONCAT({of}db, '.', {of}schema)"])
    return (
        f"CASE WHEN {TRIMMED} IN ('', 'null') THEN 'empty line' "
        f"WHEN {other} THEN '{OTHER_TABLE}' "
        "WHEN _flat IS NOT NULL OR NOT _is_one OR _misshapen THEN NULL "
        "WHEN op = 'm' THEN 'logical message' "
        "WHEN _envelope.status IN ('BEGIN', 'END') THEN 'transaction record' "
        "WHEN _envelope IS NULL AND (_record.key IS NOT NULL OR _record.topic IS NOT NULL) AND _record.value IS NULL "
        "THEN 'tombstone line' END"
    )


_SQL_SERVER = "^[0-7][0-9a-fA-F]{7}:[0-9a-fA-F]{8}:[0-9a-fA-F]{4}$"
"""Pattern of a log sequence number of SQL Server: virtual log file, block and slot."""


def _order() -> str:
    """SQL (STRUCT): (commit, position) from `_source`; 0 where the source has no value.

    A flattened row with PostgreSQL's position alone comes after the reads of a snapshot.
    """
    pair = "FROM_JSON(_source.sequence, 'ARRAY<STRING>')"
    lsn = [f"CAST(CONV(SPLIT_PART(_source.commit_lsn, ':', {i}), 16, 10) AS BIGINT)" for i in (1, 2, 3)]
    is_lsn = f"_source.commit_lsn RLIKE '{_SQL_SERVER}'"
    after_reads = "_flat IS NOT NULL AND _source.sequence IS NULL AND _source.lsn IS NOT NULL AND op <> 'r'"
    commits = [
        f"TRY_CAST(GET({pair}, 0) AS BIGINT)",
        "TRY_CAST(REGEXP_EXTRACT(_source.file, '([0-9]+)$', 1) AS BIGINT)",
        "TRY_CAST(COALESCE(_source.commit_scn, _source.scn) AS BIGINT)",
        f"IF({is_lsn}, SHIFTLEFT({lsn[0]}, 32) + {lsn[1]}, NULL)",
        f"IF({after_reads}, 1L, 0L)",
    ]
    positions = [
        f"TRY_CAST(GET({pair}, 1) AS BIGINT)",
        "TRY_CAST(_source.lsn AS BIGINT)",
        "TRY_CAST(_source.pos AS BIGINT)",
        "TRY_CAST(_source.scn AS BIGINT)",
        f"IF({is_lsn}, {lsn[2]}, NULL)",
        "0L",
    ]
    return f"STRUCT(COALESCE({', '.join(commits)}) AS commit, COALESCE({', '.join(positions)}) AS position)"


_SEQUENCE = _order()

_COMMITTED = "TIMESTAMP_MICROS(COALESCE({}, {} DIV 1000, {} * 1000))".format(
    *(f"TRY_CAST(_source.{name} AS BIGINT)" for name in COMMIT_TIMES)
)
"""SQL (TIMESTAMP): the time of the commit."""


def _steps_of_keys(side: SideSpec) -> list[list[str]]:
    """SQL of the steps from `_text_key` and `_headers` to `_key` and `_old_key`: the key of a message, and its old key.

    Both are fields as `named_values` has them. A key is taken out of `{"schema", "payload"}` if necessary, and each may
    also be a text that holds the JSON. Without key columns there is no step.
    """
    if not side.key_columns:
        return []
    keys = ("_key", "_old_key")
    old = value_of(parsed(wrapped("_headers"), f"{quote(_OLD_KEY)}: STRING"))
    inner = []
    for key in keys:
        outer = value_of(f"_p{key}")
        of_message = f"{is_one(f'_p{key}')} AND {outer}.schema IS NOT NULL AND {outer}.payload LIKE '{{%'"
        inner.append(f"IF({of_message}, {exact(f'{outer}.payload')}, _text{key}) AS _inner{key}")
    return [
        [f"{exact(f'{old}.{quote(_OLD_KEY)}')} AS _text_old_key"],
        [f"{parsed(wrapped(f'_text{key}'), 'schema: STRING, payload: STRING')} AS _p{key}" for key in keys],
        inner,
        [f"{fields_of(wrapped(f'_inner{key}'))} AS _read{key}" for key in keys],
        [f"IF({is_one(f'_read{k}')}, {named_values(value_of(f'_read{k}'))}, NULL) AS {k}" for k in keys],
    ]


def _holes(side: SideSpec) -> str:
    """SQL (ARRAY<STRING>): the columns with an unavailable value; null if the source sent all values."""
    columns = ", ".join(
        f"IF(_sent.{c.quoted} IS NOT NULL AND _texts.{c.quoted} IS NULL, {text(c.name)}, NULL)"
        for c in side.value_columns
    )
    holes = f"FILTER(CAST(ARRAY({columns}) AS ARRAY<STRING>), _name -> _name IS NOT NULL)"
    return f"IF(deleted OR SIZE({holes}) = 0, NULL, {holes})"


def _fields(names: Sequence[str]) -> str:
    """SQL (ARRAY<STRING>): the names in the row of a line's event, without the names that flattening adds."""
    sent, declared = as_declared(names), ", ".join(map(text, names))
    own = f"FILTER({sent}, _name -> NOT STARTSWITH(_name, '__') OR _name IN ({declared}))"
    return f"IF(_flat IS NULL, {sent}, {own})"


def _old(side: SideSpec) -> str:
    """SQL (STRUCT of texts): the key in the old image of a line's event."""
    values = {c.quoted: f"_envelope.before.{c.quoted}, {value_alike(c.name, '_old_alike')}" for c in side.key_columns}
    texts = ", ".join(f"{exact(f'COALESCE({sql})')} AS {name}" for name, sql in values.items())
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
    """SQL (BOOLEAN): an update may change the key and lacks the old key: the key of its message is another."""
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
    whole = " AND ".join(f"{old} IS NOT NULL" for old in texts.values())
    old = typed_key(side, {c.name: f"_old.{c.quoted}" for c in side.key_columns})
    return f"CASE WHEN {whole} THEN {typed_key(side, texts)} WHEN NOT _before THEN {old} END"


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
