"""The pipeline file as frozen values: what one join reads, how it joins, what it selects.

One row per what: a `PipelineSpec` is one join; a `SideSpec` one input table; an `Output` one column of the result.
The contract is `docs/reference/pipeline-file.md`.
"""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fk_pipeline.contract import Kind
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.registry import kind_named
from fk_pipeline.spec.sql import (
    KEY_TYPES_REFUSED,
    Column,
    Expression,
    SqlTextError,
    parse_columns,
    parse_expression,
    quote,
    refuse_moments,
)

FORMATS = ("csv", "debezium", "delta", "dms", "maxwell", "parquet", "rows")
"""Formats that this version reads; `fk_pipeline.cdc` has one class for each."""

PLAIN = ("csv", "parquet", "rows")
"""Those of them whose records are rows, and know of operations only by a column."""

NAMING_TABLES = ("debezium", "maxwell")
"""Those whose records say which table they are about."""

OWN_FORMAT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""A format of the user's: `module:Class`."""


GLOB = re.compile(r"[*?\[]")
"""What makes a path a glob."""


UNWRITABLE = frozenset("[]{}%?#*^|<>\\")
"""Characters in a local path that delta-rs takes for parts of a URL."""


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
StringList = Annotated[Strings, Field(min_length=1)]


def _problem(message: str, *path: str | int) -> PydanticCustomError:
    """An error that belongs to a place below the model that found it."""
    return PydanticCustomError("pipeline_file", "{message}", {"message": message, "path": path})


class _Frozen(BaseModel):
    """A part of the file; what stands below a field is its description in the reference (`docs/generate.py`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class CsvSpec(_Frozen):
    """How CSV files are written; without a header the columns are those of the schema, in its order."""

    delimiter: str = Field(default=",", pattern=r'^[^"\r\n]$')
    """The character between two fields."""
    header: bool | None = None
    """Whether the first line has names; default: yes for `csv`, no for `dms`."""
    null_text: str = ""
    """A text that stands for null, as an empty field without quotes does."""


LogicalType = Literal["decimal_bytes", "epoch_seconds", "epoch_millis", "epoch_micros", "epoch_nanos"]


class SideSpec(_Frozen):
    """One input: where its change files lie, what they look like, what its key is."""

    path: str = Field(min_length=1)
    """The landing files: a folder, a glob or a URI; relative to the pipeline file."""
    format: str = "debezium"
    """How changes are written; `module:Class` is a format of your own."""
    schema_: str = Field(alias="schema", min_length=1)
    """The columns that are read, as Spark DDL; other fields of the source are left out."""
    key: StringList
    """The primary key: a column, or a list."""
    sequence_by: str | None = None
    """A SQL expression: the order of the versions of a key; default: the order of the format."""
    batch_by: str | None = None
    """Which part of a file's name is the batch: a regular expression, whose groups are joined, or `arrival`; default:
    the last number in the name."""
    op_column: str | None = None
    """The field that says whether a line writes or deletes; `rows`, `csv`, `parquet` and own formats only."""
    delete_when: str | None = None
    """A SQL expression over the columns of the side: a row on which it is true is deleted, one on which it is false or
    null is written; not for `debezium`, `maxwell` and `delta`, whose records say it."""
    table: str | None = Field(default=None, min_length=1)
    """Lines that name another table are ignored and counted, those that name none are not; `debezium` and `maxwell`
    only: `flights` or `public.flights`."""
    contents: Literal["changes", "snapshot"] = "changes"
    """What a batch brings: changes, or the whole table; `snapshot` goes with `rows`, `csv`, `parquet` and own formats
    only."""
    csv: CsvSpec = Field(default_factory=CsvSpec)
    """How CSV files are written; `csv` and `dms` only."""
    logical_types: dict[str, LogicalType] = Field(default_factory=dict)
    """By column, how the source writes values whose text does not tell."""
    sensitive: Strings = ()
    """The columns, one or a list, whose values appear in the tables and nowhere else: not in logs, metadata, samples
    and messages. Those that have the same values on the other side are sensitive too."""

    @field_validator("format")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in FORMATS and not OWN_FORMAT.fullmatch(value):
            raise _problem(
                f"{value!r} is not a format that this version reads; it reads {', '.join(FORMATS)}, and module:Class"
            )
        return value

    @field_validator("delete_when", mode="before")
    @classmethod
    def _as_sql(cls, value: Any) -> Any:
        return str(value).upper() if isinstance(value, bool) else value

    @property
    def is_snapshot(self) -> bool:
        """What a batch brings of the side is the whole table."""
        return self.contents == "snapshot"

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The declared columns, in the order of the schema."""
        return parse_columns(self.schema_)

    def column(self, name: str) -> Column | None:
        """The declared column of that name; Spark resolves names without regard to case."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def type_of(self, path: tuple[str, ...]) -> str | None:
        """The declared type of the column that a path means; None of a part of a column, and of what is no column."""
        column = self.column(path[0]) if len(path) == 1 else None
        return None if column is None else column.type

    def is_sensitive(self, name: str) -> bool:
        """Whether it is the name of a sensitive column."""
        return name.lower() in (sensitive.lower() for sensitive in self.sensitive)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in the order of `key`."""
        found = [self.column(name) for name in self.key]
        return tuple(c for c in found if c is not None)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """Every column that is not part of the key."""
        keys = {c.name for c in self.key_columns}
        return tuple(c for c in self.columns if c.name not in keys)

    @model_validator(mode="after")
    def _columns_exist(self) -> SideSpec:
        try:
            names = [c.name for c in self.columns]
        except SqlTextError as error:
            raise _problem(str(error), "schema") from None
        for i, name in enumerate(self.key):
            column = self.column(name)
            if column is None:
                raise _problem(f"key column {name!r} is not in the schema; it has {', '.join(names)}", "key", i)
            if column.type.upper().split("<")[0].split("(")[0].split(" ")[0] in KEY_TYPES_REFUSED:
                raise _problem(f"key column {name!r} has type {column.type}, which cannot be a key", "key", i)
        if len({n.lower() for n in self.key}) < len(self.key):
            raise _problem(f"a column stands twice in the key {list(self.key)}", "key")
        for i, name in enumerate(self.sensitive):
            if self.column(name) is None:
                raise _problem(
                    f"sensitive column {name!r} is not in the schema; it has {', '.join(names)}", "sensitive", i
                )
        object.__setattr__(self, "sensitive", tuple(name for name in names if self.is_sensitive(name)))
        if self.sequence_by is not None:
            _check_row_expression(self, self.sequence_by, "sequence_by")
        if self.delete_when is not None:
            _check_delete_when(self, self.delete_when)
        if self.batch_by is not None:
            try:
                re.compile(self.batch_by)
            except re.error as error:
                raise _problem(f"{self.batch_by!r} is no regular expression: {error}", "batch_by") from None
        return self

    @model_validator(mode="after")
    def _options_fit(self) -> SideSpec:
        plain = self.format in PLAIN or ":" in self.format
        if self.op_column is not None and not plain:
            raise _problem(
                f"op_column goes with plain rows ({', '.join(PLAIN)}); other formats name the operation", "op_column"
            )
        if self.delete_when is not None and not (plain or self.format == "dms"):
            raise _problem(
                f"delete_when goes with plain rows ({', '.join(PLAIN)}) and dms; "
                f"{self.format} says itself what is deleted, and may leave out the values of columns",
                "delete_when",
            )
        if self.is_snapshot and self.batch_by == "arrival":
            raise _problem("dumps that arrive together would count as one table: number snapshots", "batch_by")
        if self.csv != CsvSpec() and self.format not in ("csv", "dms"):
            raise _problem("csv goes with formats csv and dms", "csv")
        if self.is_snapshot and (not plain or self.op_column is not None or self.sequence_by is not None):
            raise _problem(
                f"a snapshot is plain rows ({', '.join(PLAIN)}) without op_column and sequence_by: "
                "it replaces the table, and counts from its batch on",
                "contents",
            )
        if self.table is not None and self.format not in NAMING_TABLES:
            raise _problem(f"table goes with formats whose lines name one ({', '.join(NAMING_TABLES)})", "table")
        for name in ("batch_by", "sequence_by"):
            if self.format == "delta" and getattr(self, name) is not None:
                raise _problem(f"{name} goes with files: a Delta table has an order, and a look at it is a batch", name)
        for name, how in self.logical_types.items():
            column, wanted = self.column(name), "DECIMAL" if how == "decimal_bytes" else "TIMESTAMP"
            if column is None:
                have = ", ".join(c.name for c in self.columns)
                raise _problem(f"column {name!r} is not in the schema; it has {have}", "logical_types", name)
            if not column.type.upper().startswith(wanted):
                raise _problem(f"{how} is read into {wanted}; {name!r} is {column.type}", "logical_types", name)
        return self

    def logical_type(self, column: Column) -> LogicalType | None:
        """How the source writes the values of a column, where text alone does not tell."""
        return next((how for name, how in self.logical_types.items() if name.lower() == column.name.lower()), None)


def _check_row_expression(side: SideSpec, text: str, *path: str | int) -> Expression:
    try:
        expression = parse_expression(text)
    except SqlTextError as error:
        raise _problem(f"{text!r}: {error}", *path) from None
    for read in expression.reads:
        if side.column(read[0]) is None:
            have = ", ".join(c.name for c in side.columns)
            raise _problem(f"{text!r} reads column {read[0]!r}, which is not in the schema; it has {have}", *path)
    try:
        refuse_moments(text, side.type_of)
    except SqlTextError as error:
        raise _problem(f"{text!r}: {error}", *path) from None
    return expression


_AS_CONDITION = {"STRING": "{} = 'true'", "DATE": "{} IS NOT NULL", "TIMESTAMP": "{} IS NOT NULL"}
"""How a column of a type is made a condition, by the first word of the type."""


def _check_delete_when(side: SideSpec, sql: str) -> None:
    expression = _check_row_expression(side, sql, "delete_when")
    if not expression.reads and sql.strip().upper() != "FALSE":
        raise _problem(f"{sql!r} reads no column: it would delete every row, or none; for none: FALSE", "delete_when")
    column = side.column(expression.reads[0][0]) if expression.plain and len(expression.reads[0]) == 1 else None
    if column is not None and column.type.upper() != "BOOLEAN":
        condition = _AS_CONDITION.get(column.type.upper().split("(")[0].split("_")[0], "{} = 1").format(sql.strip())
        raise _problem(f"{sql!r} is {column.type}, not BOOLEAN; write {condition!r} for example", "delete_when")


class LeftSpec(SideSpec):
    """The left input also says which right row each of its rows refers to."""

    foreign_key: StringList
    """Which right row a left row refers to: a SQL expression over the left columns per column of the right key, in its
    order."""

    @model_validator(mode="after")
    def _foreign_key_is_sql(self) -> LeftSpec:
        for i, text in enumerate(self.foreign_key):
            _check_row_expression(self, text, "foreign_key", i)
        return self


@dataclass(frozen=True)
class Output:
    """One column of the result: its name and the SQL that computes it from `left`, `right` and unambiguous names."""

    name: str
    sql: str
    plain: bool
    """It is a column of one side as it is, so that computing it cannot fail."""


Strategy = Literal["auto", "incremental", "full"]


FAN_OUT_WITHIN_BUDGET = "fan_out_within_budget"
"""The check of `right_table` that a batch beyond `max_fan_out` fails."""


StageName = Annotated[str, "stage"]
"""A stage of the kind of join."""


class Settings(_Frozen):
    """Tuning. Every default is meant to be left alone."""

    spark: dict[str, str] = Field(default_factory=dict)
    """Spark settings, by their Spark names, of a session that the command or Dagster starts. Any of `spark.jars`,
    `spark.jars.packages` and `spark.driver.extraClassPath` means that you bring Delta yourself."""
    driver_memory: str | None = None
    """Heap of a local Spark driver, `4g` for example; default: Spark's own."""
    shuffle_partitions: int | None = Field(default=None, ge=1)
    """`spark.sql.shuffle.partitions` of a local session; default: the number of cores."""
    max_batches_per_pass: int = Field(default=200, ge=1)
    """A range run is cut into passes of at most this many batches."""
    max_line_bytes: int = Field(default=8 * 2**20, ge=1000, le=2**30)
    """A line of a landing file, or a CSV record, that has more bytes goes to the quarantine: Spark would hold it in
    memory, several times over."""
    max_fan_out: int | None = Field(default=None, ge=0)
    """Left rows that refer to right rows that a batch changes, above which it waits for somebody to agree; null: any
    number."""
    max_quarantined_share: float = Field(default=0.01, ge=0, le=1)
    """Share of the records that were read, above which a check warns of what is in the quarantine."""
    max_late_share: float = Field(default=0.1, ge=0, le=1)
    """Share of the changed keys that came after something newer, above which a check warns."""
    max_unresolved_holes: int = Field(default=0, ge=0)
    """Rows with a value that the source did not send and that is not known, above which a check warns."""
    data_docs: str | None = None
    """Folder, relative to the pipeline file, in which full checks in Dagster write the Data Docs; default: nowhere."""
    sensor_seconds: int = Field(default=15, ge=1)
    """How often the Dagster sensor looks for new landing files."""
    settle_seconds: float = Field(default=0, ge=0)
    """How long the sensor waits with a new batch that has files of one side only; 0: not at all."""
    max_batches_per_run: int = Field(default=1000, ge=1)
    """A run that the sensor asks for covers at most this many batches."""
    retry_seconds: float = Field(default=30, ge=0)
    """How long the sensor waits after a failed run of a batch; after each further one twice as long, up to an hour."""
    max_failures: int = Field(default=5, ge=1)
    """A batch that failed this often in a row is left alone by the sensor until somebody runs it."""
    fresh_hours: float | None = Field(default=24, gt=0)
    """Dagster calls the result stale when no batch was run for so many hours; null: never."""
    full_checks_cron: str = "0 2 * * *"
    """When the schedule of the full checks fires, in UTC."""
    maintenance_cron: str = "0 4 * * 0"
    """When the schedule of the maintenance fires, in UTC."""
    retention_hours: float = Field(default=168, ge=0)
    """Maintenance removes files that no version of so many hours ago needs: changes and time travel go as far back, and
    so does what a run that goes on may still read. Leave it at hours."""
    fold_after_hours: float | None = Field(default=None, ge=0)
    """Maintenance folds batches that were done so many hours ago, 720 for example: of their versions the changelogs
    keep the last per key, and what they answered is removed. A folded batch can no longer be restated or withdrawn."""
    tombstone_retention: float | None = Field(default=None, ge=0)
    """Hours after which maintenance forgets a deleted key, 2160 for example, once its batches are folded; null: never.
    What lands later and is older than the delete brings the key back."""
    strategy: Strategy | dict[StageName, Strategy] = "auto"
    """How stages change their tables: `incremental` looks rows up and puts them in place, `full` writes tables anew,
    `auto` chooses by cost. One word for all stages, or one per stage."""

    def strategy_of(self, stage: str) -> Strategy:
        """How a stage is to change its table."""
        return self.strategy.get(stage, "auto") if isinstance(self.strategy, dict) else self.strategy

    @model_validator(mode="after")
    def _folds_before_it_forgets(self) -> Settings:
        folds, forgets = self.fold_after_hours, self.tombstone_retention
        if forgets is not None and (folds is None or folds > forgets):
            raise ValueError("tombstone_retention needs a fold_after_hours that is not longer")
        return self

    @field_validator("spark", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


class OwnExpectation(_Frozen):
    """An expectation of the user's, as Great Expectations writes it down: `type`, `kwargs`, `severity`, `meta`."""

    type: str = Field(pattern=r"^expect_[a-z0-9_]+$")
    """The expectation, as Great Expectations calls it."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Its arguments."""
    severity: Literal["critical", "warning", "info"] = "critical"
    """Whether it stops what comes after it (`critical`) or is told only."""
    name: str = Field(default="", pattern=r"^[A-Za-z0-9_]*$")
    """Of its check; default: `own_`, its type without `expect_`, and its columns."""
    description: str | None = None
    """What the check says it asks for; default: its type."""
    meta: dict[str, Any] = Field(default_factory=dict)
    """Notes of yours, handed on to Great Expectations."""

    @property
    def columns(self) -> list[str]:
        """The columns that it names."""
        single = [self.kwargs[key] for key in ("column", "column_A", "column_B") if key in self.kwargs]
        several = [self.kwargs[key] for key in ("column_list", "column_set") if key in self.kwargs]
        return [str(one) for one in single] + [str(one) for many in several for one in many]


class OwnSuites(_Frozen):
    """The user's expectations of the input tables and of the result."""

    left: tuple[OwnExpectation, ...] = ()
    """Of the rows of the left input."""
    right: tuple[OwnExpectation, ...] = ()
    """Of the rows of the right input."""
    resolved_join: tuple[OwnExpectation, ...] = ()
    """Of the result."""

    @model_validator(mode="after")
    def _named(self) -> OwnSuites:
        for table in type(self).model_fields:
            taken: set[str] = set()
            named = []
            for i, one in enumerate(getattr(self, table)):
                short = re.sub(r"\W+", "_", "_".join([one.type.removeprefix("expect_"), *one.columns])).strip("_")
                name = one.name or f"own_{short}"
                if one.name and one.name in taken:
                    raise _problem(f"two expectations of {table} are called {one.name!r}", table, i, "name")
                while name in taken:
                    name += "_again"
                taken.add(name)
                named.append(one.model_copy(update={"name": name}))
            object.__setattr__(self, table, tuple(named))
        return self


class PipelineSpec(_Frozen):
    """One join, as its pipeline file describes it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)
    """Names the table folder, the Dagster asset group and the partition set."""
    kind: Literal["foreign_key"] = "foreign_key"
    """The kind of join; the only one so far."""
    join: Literal["inner", "left"]
    """What happens to left rows without a match: left out, or kept with nulls on the right."""
    left: LeftSpec
    """The left input."""
    right: SideSpec
    """The right input."""
    select: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The columns of the result, as SQL expressions; default: every column of both sides."""
    warehouse: str = Field(default="warehouse", min_length=1)
    """A folder or URI: all tables of the pipeline lie in `<warehouse>/<name>/`."""
    on_bad_record: Literal["quarantine", "fail"] = "quarantine"
    """What happens to a record that cannot be read: stored in the quarantine, or the stage stops and its batches stay
    due."""
    schema_changes: Literal["evolve", "ignore", "fail"] = "evolve"
    """What happens when a source sends other fields than before, and when columns are added to a `schema`."""
    expectations: OwnSuites = Field(default_factory=OwnSuites)
    """Expectations of your own."""
    settings: Settings = Field(default_factory=Settings)
    """Tuning."""
    file: Path = Field(default=Path("pipeline.yaml"), exclude=True)

    @property
    def definition(self) -> Kind:
        """What its kind of join consists of: inputs, tables, stages."""
        return kind_named(self.kind)

    @property
    def has_sensitive(self) -> bool:
        """Whether any column of any side is sensitive."""
        return bool(self.left.sensitive or self.right.sensitive)

    @cached_property
    def sensitive_outputs(self) -> frozenset[str]:
        """The columns of the result whose expression reads a sensitive column."""
        found = set()
        for output in self.outputs:
            reads = [self.resolve(read) for read in parse_expression(output.sql).reads]
            if any(column.name in self.side(side).sensitive for side, column in reads):
                found.add(output.name)
        return frozenset(found)

    @property
    def inner(self) -> bool:
        """Whether unmatched left rows are left out of the result."""
        return self.join == "inner"

    def side(self, side: Side) -> SideSpec:
        """The input of a side."""
        return self.left if side is Side.LEFT else self.right

    def row_expressions(self, side: Side) -> tuple[str, ...]:
        """The SQL that is computed for every change of a side."""
        of_side = self.side(side)
        own = filter(None, (of_side.sequence_by, of_side.delete_when))
        return (*(self.left.foreign_key if side is Side.LEFT else ()), *own)

    def with_settings(self, **settings: Any) -> PipelineSpec:
        """The same with other settings.

        Raises:
            PipelineFileError: one of them is wrong.
        """
        try:
            changed = Settings.model_validate(self.settings.model_dump() | settings)
        except ValidationError as error:
            first = error.errors()[0]
            raise PipelineFileError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return self.model_copy(update={"settings": changed})

    def location(self, path: str) -> str:
        """A `path` or `warehouse` of the file as an absolute path, or the URI that it is."""
        return path if "://" in path else str((self.file.parent / path).absolute())

    def landing(self, side: Side) -> str:
        """The landing folder or glob of a side, absolute; only what the file says is a pattern, not where it lies."""
        path = self.side(side).path
        if "://" in path or not GLOB.search(path):
            return self.location(path)
        return f"{glob.escape(str(self.file.parent.absolute()))}/{path}"

    def relative(self, path: str) -> str:
        """A path below the folder of the file, as `location` takes it: the folder may be moved as a whole."""
        return path.removeprefix(f"{self.file.parent.absolute()}/")

    @property
    def home(self) -> str:
        """The folder or URI under which every table of this pipeline lies."""
        return f"{self.location(self.warehouse).rstrip('/')}/{self.name}"

    @property
    def docs_folder(self) -> Path | None:
        """Where full checks in Dagster write the Data Docs."""
        return None if self.settings.data_docs is None else self.file.parent / self.settings.data_docs

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result, in order."""
        if self.select is None:
            return self._default_outputs()
        parsed = [parse_expression(text) for text in self.select]
        return tuple(Output(e.name or "", e.text, e.plain) for e in parsed)

    def _default_outputs(self) -> tuple[Output, ...]:
        taken = {c.name.lower() for c in self.left.columns}
        left = [Output(c.name, f"left.{c.quoted} AS {c.quoted}", True) for c in self.left.columns]
        right = []
        for c in self.right.columns:
            name = f"right_{c.name}" if c.name.lower() in taken else c.name
            right.append(Output(name, f"right.{c.quoted} AS {quote(name)}", True))
        return (*left, *right)

    @cached_property
    def right_outputs(self) -> frozenset[str]:
        """The columns of the result whose expression reads a column of the right side."""
        reads = {output.name: map(self.resolve, parse_expression(output.sql).reads) for output in self.outputs}
        return frozenset(name for name, found in reads.items() if any(side is Side.RIGHT for side, _ in found))

    @cached_property
    def selected(self) -> dict[Side, tuple[Column, ...]]:
        """Per side the columns that the result depends on, in the order of the schema: what the hashes cover."""
        if self.select is None:
            return {Side.LEFT: self.left.columns, Side.RIGHT: self.right.columns}
        names: dict[Side, set[str]] = {Side.LEFT: set(), Side.RIGHT: set()}
        for text in self.select:
            for read in parse_expression(text).reads:
                side, column = self.resolve(read)
                names[side].add(column.name)
        return {side: tuple(c for c in self.side(side).columns if c.name in names[side]) for side in Side}

    def resolve(self, read: tuple[str, ...]) -> tuple[Side, Column]:
        """The column that a path in `select` means."""
        if read[0].lower() in ("left", "right"):
            side = Side(read[0].lower())
            column = self.side(side).column(read[1]) if len(read) > 1 else None
            if column is None:
                have = ", ".join(c.name for c in self.side(side).columns)
                raise SqlTextError(f"{'.'.join(read)!r} is not a column of the {side} schema; it has {have}")
            return side, column
        found = [(side, c) for side in Side if (c := self.side(side).column(read[0])) is not None]
        if not found:
            raise SqlTextError(f"column {read[0]!r} is in neither schema")
        if len(found) > 1:
            raise SqlTextError(f"column {read[0]!r} is on both sides; write left.{read[0]} or right.{read[0]}")
        return found[0]

    def _type_of(self, read: tuple[str, ...]) -> str | None:
        _, column = self.resolve(read)
        whole = 2 if read[0].lower() in ("left", "right") else 1
        return column.type if len(read) == whole else None

    @model_validator(mode="after")
    def _stages_are_there(self) -> PipelineSpec:
        stages, named = self.definition.stage_names, self.settings.strategy
        for name in named if isinstance(named, dict) else ():
            if name not in stages:
                raise _problem(
                    f"there is no stage {name!r}; stages are {', '.join(stages)}", "settings", "strategy", name
                )
        return self

    @model_validator(mode="after")
    def _warehouse_can_be_written(self) -> PipelineSpec:
        odd = sorted(set(self.home) & UNWRITABLE)
        if odd and "://" not in self.home:
            raise _problem(
                f"{self.home} has {' '.join(odd)} in it, which Delta tables cannot be written under", "warehouse"
            )
        return self

    @model_validator(mode="after")
    def _sides_fit(self) -> PipelineSpec:
        count, keys = len(self.left.foreign_key), len(self.right.key)
        if count != keys:
            raise _problem(
                f"foreign_key has {count} component(s), the right key {keys} ({', '.join(self.right.key)})",
                "left",
                "foreign_key",
            )
        for i, (text, key) in enumerate(zip(self.left.foreign_key, self.right.key_columns, strict=True)):
            expression = parse_expression(text)
            column = self.left.column(expression.reads[0][0]) if expression.plain else None
            if column is not None and len(expression.reads[0]) == 1 and column.type.upper() != key.type.upper():
                raise _problem(
                    f"foreign_key {text!r} is {column.type}, the right key {key.name!r} is {key.type}; "
                    f"make the types equal, for example with CAST({text} AS {key.type})",
                    "left",
                    "foreign_key",
                    i,
                )
        names: set[str] = set()
        for i, text in enumerate(self.select or ()):
            try:
                expression = parse_expression(text)
                for read in expression.reads:
                    self.resolve(read)
                refuse_moments(text, self._type_of)
            except SqlTextError as error:
                raise _problem(f"{text!r}: {error}", "select", i) from None
            if expression.name is None:
                raise _problem(f"{text!r} needs a name: write '{text} AS some_name'", "select", i)
            if expression.name.lower() in names:
                raise _problem(f"two columns of the result are called {expression.name!r}", "select", i)
            if expression.name.lower().startswith("_fk_"):
                raise _problem(f"{expression.name!r}: names that start with _fk_ are the pipeline's own", "select", i)
            names.add(expression.name.lower())
        if self.select is None:
            clash = [o.name for o in self.outputs]
            if len({n.lower() for n in clash}) < len(clash):
                raise _problem("the default select would name two columns alike; write a select", "right", "schema")
        return self

    @model_validator(mode="after")
    def _equal_values_are_alike_sensitive(self) -> PipelineSpec:
        """A foreign key has the values of the right key: what is sensitive on one side is so on the other."""
        read = [
            {column.name for path in parse_expression(text).reads if (column := self.left.column(path[0])) is not None}
            for text in self.left.foreign_key
        ]
        keys = [column.name for column in self.right.key_columns]
        left, right = set(self.left.sensitive), set(self.right.sensitive)
        left |= {name for names, key in zip(read, keys, strict=True) if key in right for name in names}
        right |= {key for names, key in zip(read, keys, strict=True) if names & left}
        for side, names in (("left", left), ("right", right)):
            spec = self.side(Side(side))
            ordered = tuple(column.name for column in spec.columns if column.name in names)
            object.__setattr__(self, side, spec.model_copy(update={"sensitive": ordered}))
        return self

    @model_validator(mode="after")
    def _expected_columns_exist(self) -> PipelineSpec:
        known = {side.value: [c.name for c in self.side(side).columns] for side in Side}
        known["resolved_join"] = [o.name for o in self.outputs]
        for table, names in known.items():
            for i, one in enumerate(getattr(self.expectations, table)):
                unknown = [column for column in one.columns if column not in names]
                if unknown:
                    raise _problem(
                        f"{one.type} names column {unknown[0]!r}, which {table} has not; it has {', '.join(names)}",
                        "expectations",
                        table,
                        i,
                        "kwargs",
                    )
        return self
