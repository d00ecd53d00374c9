"""The inputs of the pipeline file: where rows land, in which format, with which columns, key and order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from fk_pipeline.spec.base import Frozen, StringList, Strings, problem
from fk_pipeline.spec.clock import WALL, Clock, Zone
from fk_pipeline.spec.described import of_columns
from fk_pipeline.spec.formats import BY_COMMIT, CHANGE_TYPE, COMMITTED_AT, CsvSpec, FormatName, LogicalType
from fk_pipeline.spec.input_checks import (
    check_condition,
    check_key,
    check_options,
    check_row_expression,
    check_valid_from,
    columns_like,
)
from fk_pipeline.spec.sql import Column, SqlTextError, parse_columns

SINCE = "_fk_valid_from"
"""Column: the time since which a version of a row holds; `store.schemas.VALID_FROM`."""

CLOCK = "clock"
"""The format of an input that is a clock, and the column that is its key: it is true in its one row."""

CLOCK_TIMES = "at TIMESTAMP, day DATE"
"""The columns that a query reads of a clock."""

PLACEHOLDER = "?"
"""The placeholder that `init` writes for a `key` or a `foreign_key` that the samples do not show."""

RESULT_KEY = "result_key"
"""The key of the result of another pipeline if parts of it may be null: all of them as JSON."""

EVENT_COLUMN = Column("event", "STRING")
"""The key of events without a key: the place where each landed (`docs/reference/pipeline-file.md`)."""

INPUT_NAME = re.compile(r"[a-z][a-z0-9_]*")
"""The name of an input, where a pipeline file gives it one."""


@cache
def _parsed(schema: str) -> tuple[Column, ...]:
    return parse_columns(schema)


def _columns_known(info: ValidationInfo) -> str:
    """Returns the columns of the schema as a part of an error; empty if the schema is wrong itself."""
    try:
        return f"; there are {', '.join(column.name for column in _parsed(info.data.get('schema_', '')))}"
    except SqlTextError:
        return ""


def _names_event(schema: str) -> bool:
    return any(column.name.lower() == EVENT_COLUMN.name for column in _parsed(schema))


def _key_is_known(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if PLACEHOLDER in value:
        raise problem(
            f"{PLACEHOLDER!r} stands for a key that is not known yet: write the column, or the list of columns, "
            f"whose values identify a row ('key: order_id', 'key: [order_id, line_no]'){_columns_known(info)}. Of two "
            "rows with one key the later replaces the earlier; for rows that nothing identifies, write "
            "'contents: events' in place of a key"
        )
    return value


def _as_sql(value: Any) -> Any:
    return str(value).upper() if isinstance(value, bool) else value


class SideSpec(Frozen):
    """One input: where its change files lie, what they look like, what its key is."""

    pipeline: str | None = None
    """A pipeline file whose result is read, in place of the next four."""
    path: str = Field(min_length=1)
    """The landing files: folder, glob or URI."""
    format: FormatName = "debezium"
    """How changes are written."""
    schema_: str = Field(alias="schema", min_length=1)
    """The columns read, as Spark DDL."""
    key: Annotated[StringList, AfterValidator(_key_is_known)]
    """The primary key; events may have none."""
    valid_from: str | None = None
    """SQL: since when a version holds, with `as_of` a time; or `committed_at`; default: `sequence_by`."""
    sequence_by: str | None = None
    """SQL: the order of a key's versions; default: that of the format."""
    batch_by: str | None = None
    """The part of a file's name that is the batch, a regular expression, or `arrival`; default: the last number."""
    op_column: str | None = None
    """The field that tells writes from deletes; only `rows`, `csv`, `parquet` and own formats."""
    delete_when: Annotated[str | None, BeforeValidator(_as_sql)] = None
    """SQL: the rows that are deletes; not `debezium`, `maxwell`, `delta`."""
    where: str | None = None
    """SQL: the rows that count."""
    table: str | None = Field(default=None, min_length=1)
    """`flights` or `public.flights`; lines of other tables are ignored. Only `debezium` and `maxwell`."""
    contents: Literal["changes", "snapshot", "events"] = "changes"
    """What a batch brings; `snapshot` only of `rows`, `csv`, `parquet` and own formats."""
    csv: CsvSpec = Field(default_factory=CsvSpec)
    """`delimiter`, `header`, `null_text`; of `csv` and `dms` only."""
    logical_types: dict[str, LogicalType] = Field(default_factory=dict)
    """By column, what numbers or texts stand for: `epoch_micros`."""
    key_of_result: tuple[str, ...] = Field(default=(), exclude=True)
    told_apart: str = Field(default="", exclude=True)
    not_run: str = Field(default="", exclude=True)
    sensitive: Strings = ()
    """Columns whose values appear only in the tables."""
    descriptions: dict[str, str] = Field(default_factory=dict)
    """Of columns, for Dagster."""

    @model_validator(mode="before")
    @classmethod
    def _events_have_a_place(cls, given: Any) -> Any:
        """Gives events without a key the place as key, unless the schema has a column of this name."""
        if isinstance(given, dict) and given.get("contents") == "events" and "key" not in given:
            try:
                named = _names_event(str(given.get("schema")))
            except SqlTextError:
                return given
            return given if named else {**given, "key": [EVENT_COLUMN.name]}
        return given

    @model_validator(mode="before")
    @classmethod
    def _clocks_are_of_queries(cls, given: Any) -> Any:
        if isinstance(given, dict) and CLOCK in given and CLOCK not in cls.model_fields:
            raise problem("only a query (kind: query) has inputs that are clocks", CLOCK)
        return given

    @property
    def has_versions(self) -> bool:
        """Whether a look finds a version of a table there, and no files."""
        return self.format in ("delta", CLOCK)

    @property
    def is_snapshot(self) -> bool:
        """Whether each batch of the side is the whole table."""
        return self.contents == "snapshot"

    @property
    def keyed_by_place(self) -> bool:
        """Whether the side has events without a key: the place where one landed is its key."""
        return self.contents == "events" and self.key == (EVENT_COLUMN.name,) and not _names_event(self.schema_)

    @property
    def feed_of_delta(self) -> bool:
        """Whether the files have the change feed of a Delta table, ordered by the commits of that table.

        Then rows of one commit are ordered as `format: delta` orders them: removed ones, old images among them, first.
        A column of the row cannot order them: a removed row has the value of the row that it removes.
        """
        named = self.op_column is not None and self.op_column.lower() == CHANGE_TYPE
        has_changes = self.contents == "changes" and bool(self.key)
        by_commit = (self.sequence_by or "").strip("` ").lower() in BY_COMMIT
        return named and has_changes and by_commit and self.valid_from is None

    @property
    def holds_since_commit(self) -> bool:
        """Whether a version holds since its source committed it: `committed_at`, and no column of this name."""
        return self.valid_from == COMMITTED_AT and self.column(COMMITTED_AT) is None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The declared columns, in the order of the schema; then `event`, if that is the key."""
        declared = _parsed(self.schema_)
        return (*declared, EVENT_COLUMN) if self.keyed_by_place else declared

    @property
    def as_sent(self) -> SideSpec:
        """The side with the columns that its files have: without `event`, and without a key if that is the key."""
        return self.model_copy(update={"contents": "changes", "key": ()}) if self.keyed_by_place else self

    def column(self, name: str) -> Column | None:
        """Returns the declared column of that name, without regard to case, as Spark does; None if there is none."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def type_of(self, path: tuple[str, ...]) -> str | None:
        """Returns the declared type of the column at a path; None for a part of a column or an unknown one."""
        column = self.column(path[0]) if len(path) == 1 else None
        return None if column is None else column.type

    def is_sensitive(self, name: str) -> bool:
        """Returns whether the name is that of a sensitive column."""
        return name.lower() in (sensitive.lower() for sensitive in self.sensitive)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in the order of `key`."""
        return self._named(self.key)

    @property
    def stored_key(self) -> tuple[str, ...]:
        """The columns that identify a row of a batch in the changelog: the key, and the time since which it holds."""
        keys = tuple(column.name for column in self.key_columns)
        return keys if self.valid_from is None else (*keys, SINCE)

    @property
    def key_parts(self) -> tuple[Column, ...]:
        """The columns of the key; of `result_key` the columns that it is made of."""
        return self._named(self.key_of_result or self.key)

    def _named(self, names: Sequence[str]) -> tuple[Column, ...]:
        return tuple(column for column in map(self.column, names) if column is not None)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """Every column that is not part of the key."""
        keys = {c.name for c in self.key_columns}
        return tuple(c for c in self.columns if c.name not in keys)

    @model_validator(mode="after")
    def _fits(self) -> SideSpec:
        try:
            names = [c.name for c in _parsed(self.schema_)]
        except SqlTextError as error:
            raise problem(str(error), "schema") from None
        check_key(self, names)
        for i, name in enumerate(self.sensitive):
            if self.column(name) is None:
                what = f"sensitive column {name!r} is not in the schema{columns_like(name, self)}"
                raise problem(what, "sensitive", i)
        object.__setattr__(self, "sensitive", tuple(name for name in names if self.is_sensitive(name)))
        descriptions = of_columns(self.descriptions, [column.name for column in self.columns], "schema")
        object.__setattr__(self, "descriptions", descriptions)
        if self.sequence_by is not None:
            check_row_expression(self, self.sequence_by, "sequence_by")
        if self.valid_from is not None:
            check_valid_from(self, self.valid_from)
        for name in ("delete_when", "where"):
            if getattr(self, name) is not None:
                check_condition(self, getattr(self, name), name)
        if self.batch_by is not None:
            try:
                re.compile(self.batch_by)
            except re.error as error:
                raise problem(f"{self.batch_by!r} is no regular expression: {error}", "batch_by") from None
        check_options(self)
        return self

    def logical_type(self, column: Column) -> LogicalType | None:
        """Returns how the source encodes the values of a column if their text is ambiguous; None if it is not."""
        return next((how for name, how in self.logical_types.items() if name.lower() == column.name.lower()), None)


class LeftSpec(SideSpec):
    """The left input also says which right row each of its rows refers to."""

    foreign_key: StringList
    """SQL: per column of the right key, the right row that a left row refers to."""

    @field_validator("foreign_key")
    @classmethod
    def _foreign_key_is_known(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if PLACEHOLDER in value:
            raise problem(
                f"{PLACEHOLDER!r} stands for a foreign key that is not known yet: write the left column, or SQL "
                "expression, whose value is the right key, or a list with one for each column of that key "
                f"('foreign_key: customer_id'){_columns_known(info)}"
            )
        return value

    @model_validator(mode="after")
    def _foreign_key_is_sql(self) -> LeftSpec:
        for i, text in enumerate(self.foreign_key):
            check_row_expression(self, text, "foreign_key", i)
        return self


class ClockSpec(SideSpec):
    """An input of a query that is a clock: a table of one row, with the start of the current step."""

    clock: str
    """How long a step is."""
    zone: Zone = "UTC"
    """The time zone in which a day begins at midnight."""
    path: str = WALL
    format: str = CLOCK
    schema_: str = Field(default=f"{CLOCK_TIMES}, {CLOCK} BOOLEAN", alias="schema")
    key: StringList = (CLOCK,)

    @model_validator(mode="before")
    @classmethod
    def _only_its_own(cls, given: Any) -> Any:
        for name in given if isinstance(given, dict) else ():
            if name not in ("clock", "zone"):
                raise problem(f"a clock has the keys clock and zone, and no {name}", str(name))
        return given

    @field_validator("clock")
    @classmethod
    def _steps_evenly(cls, value: str) -> str:
        try:
            Clock.of(value, "UTC")
        except ValueError as error:
            raise problem(str(error)) from None
        return value

    @property
    def of_wall(self) -> Clock:
        """The clock."""
        return Clock.of(self.clock, self.zone)
