"""The pipeline file as frozen values: the inputs of one join, the kind of join, and the selected columns.

A `PipelineSpec` is one join, a `SideSpec` one input table, an `Output` one column of the result.
The contract is `docs/reference/pipeline-file.md`.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    model_validator,
)

from fk_pipeline.contract import Kind
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.registry import FIRST, KINDS, kind_named
from fk_pipeline.spec.base import Frozen, problem
from fk_pipeline.spec.durations import Length
from fk_pipeline.spec.inputs import LeftSpec, SideSpec, check_row_expression
from fk_pipeline.spec.settings import OwnSuites, Settings
from fk_pipeline.spec.sql import (
    Column,
    SqlTextError,
    parse_expression,
    quote,
    refuse_moments,
)

BY_BATCH = "batch"
"""The value of `as_of` with which a left row sees the right table as the batches up to its own left it."""

VALIDITY = ("valid_from", "valid_to")
"""The columns that `select` may name besides those of the right schema if the pipeline has `as_of`."""

UNKNOWN_TYPE = "expression"
"""Stands for the type of an expression where only Spark can tell it."""

GLOB = re.compile(r"[*?\[]")
"""The characters that make a path a glob."""

UNWRITABLE = frozenset("[]{}%?#*^|<>\\")
"""Characters in a local path that delta-rs takes for parts of a URL."""


@dataclass(frozen=True)
class Output:
    """One column of the result: its name and the SQL that computes it from `left`, `right` and unambiguous names."""

    name: str
    sql: str
    plain: bool
    """It is a column of one side as it is, so that computing it cannot fail."""


def registered(name: str) -> str:
    """Returns the name of a kind if the registry has it."""
    if name not in KINDS:
        raise problem(f"{name!r} is not possible; it must be {' or '.join(map(repr, KINDS))}")
    return name


class PipelineSpec(Frozen):
    """One join, as its pipeline file describes it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)
    """Names the table folder, the Dagster asset group and the partition set."""
    kind: Annotated[str, AfterValidator(registered)] = FIRST
    """The kind of join; the only one so far."""
    join: Literal["inner", "left", "outer"]
    """What happens to rows without a match: left out; left rows kept with nulls on the right; or also right rows that
    no left row refers to kept, with nulls on the left."""
    result_key: Literal["both"] | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """What identifies a row of the result; `both`: left key and right key, so that another foreign key is a delete and
    an insert; or SQL expressions over the columns of both keys, each with a name, whose values must be unique; default:
    the left key, and in an outer join the right key of a row without a left row."""
    as_of: str | None = None
    """Which version of its right row a left row sees: `batch`, the right table as the batches up to its own left it; or
    a SQL expression over the left columns (TIMESTAMP or BIGINT), the version that held at this time; default: the
    latest. Goes with `inner` and `left`."""
    history: Length | None = None
    """How far versions of right rows go back, with `as_of` an expression: `90 days`, or with a BIGINT a whole number.
    Maintenance closes the time up to so long before the newest version: versions that had ended by then answer no left
    row any more, and what asks for them is counted as `expired`; default: all versions answer for ever."""
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
        """The definition of its kind of join: inputs, tables, stages."""
        return kind_named(self.kind)

    @property
    def has_sensitive(self) -> bool:
        """Whether any column of any side is sensitive."""
        return bool(self.left.sensitive or self.right.sensitive)

    @cached_property
    def sensitive_outputs(self) -> frozenset[str]:
        """The columns of the result whose expression reads a sensitive column."""
        found = set()
        secret = {(Side.RIGHT, column) for column in self.columns_of_validity if self.right.holds_since_secret}
        for output in self.outputs:
            reads = [self.resolve(read) for read in parse_expression(output.sql).reads]
            if secret & {*reads} or any(column.name in self.side(side).sensitive for side, column in reads):
                found.add(output.name)
        return frozenset(found)

    @property
    def inner(self) -> bool:
        """Whether unmatched left rows are left out of the result."""
        return self.join == "inner"

    @property
    def outer(self) -> bool:
        """Whether right rows to which no left row refers are in the result."""
        return self.join == "outer"

    @property
    def as_of_batch(self) -> bool:
        """Whether the time of a row is its batch."""
        return self.as_of == BY_BATCH

    @property
    def time_type(self) -> str:
        """The type of the times that `as_of` compares, as far as the file alone tells it."""
        if self.as_of is None or self.as_of_batch:
            return "INT"
        if self.right.holds_since_commit:
            return "TIMESTAMP"
        for side, text in ((self.right, self.right.valid_from), (self.left, self.as_of)):
            expression = None if text is None else parse_expression(text)
            column = side.column(expression.reads[0][0]) if expression is not None and expression.plain else None
            if column is not None:
                return column.type
        return UNKNOWN_TYPE

    @property
    def selects_end(self) -> bool:
        """Whether a column of the result depends on the end of validity of its right row."""
        return "valid_to" in self.selected_validity

    @property
    def selected_validity(self) -> tuple[str, ...]:
        """The columns of `VALIDITY` that the result depends on."""
        reads = {self.resolve(read) for output in self.outputs for read in parse_expression(output.sql).reads}
        return tuple(column.name for column in self.columns_of_validity if (Side.RIGHT, column) in reads)

    def _validity(self, name: str) -> Column | None:
        """Returns a column of `VALIDITY` if `select` may name it: a column of the schema has precedence."""
        if self.as_of is None or name.lower() not in VALIDITY or self.right.column(name) is not None:
            return None
        return Column(name.lower(), self.time_type)

    def columns_of(self, side: Side) -> tuple[Column, ...]:
        """Returns the columns that expressions of the result may name: those of the side, and its validity."""
        if side is Side.LEFT:
            return self.left.columns
        return (*self.right.columns, *self.columns_of_validity)

    @property
    def columns_of_validity(self) -> tuple[Column, ...]:
        """The columns of `VALIDITY` that expressions of the result may name."""
        return tuple(found for name in VALIDITY if (found := self._validity(name)) is not None)

    def _column(self, side: Side, name: str) -> Column | None:
        return next((c for c in self.columns_of(side) if c.name.lower() == name.lower()), None)

    def side(self, side: Side) -> SideSpec:
        """Returns the input of a side."""
        return self.left if side is Side.LEFT else self.right

    def row_expressions(self, side: Side) -> tuple[str, ...]:
        """Returns the SQL expressions that are computed for every change of a side."""
        of_side = self.side(side)
        valid_from = None if of_side.holds_since_commit else of_side.valid_from
        own = filter(None, (of_side.sequence_by, of_side.delete_when, valid_from))
        if side is Side.RIGHT:
            return tuple(own)
        time = () if self.as_of is None or self.as_of_batch else (self.as_of,)
        return (*self.left.foreign_key, *time, *own)

    def with_settings(self, **settings: Any) -> PipelineSpec:
        """Returns the same pipeline with other settings.

        Raises:
            PipelineFileError: one of the settings is wrong.
        """
        try:
            changed = Settings.model_validate(self.settings.model_dump() | settings)
        except ValidationError as error:
            first = error.errors()[0]
            raise PipelineFileError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return self.model_copy(update={"settings": changed})

    def location(self, path: str) -> str:
        """Returns a `path` or `warehouse` of the file as an absolute path; a URI unchanged."""
        return path if "://" in path else str((self.file.parent / path).absolute())

    def landing(self, side: Side) -> str:
        """Returns the absolute landing folder or glob of a side; only `path` is a pattern, not the file's folder."""
        path = self.side(side).path
        if "://" in path or not GLOB.search(path):
            return self.location(path)
        return f"{glob.escape(str(self.file.parent.absolute()))}/{path}"

    def relative(self, path: str) -> str:
        """Returns a path below the folder of the file as a relative path, any other path unchanged.

        The folder can therefore be moved as a whole.
        """
        return path.removeprefix(f"{self.file.parent.absolute()}/")

    @property
    def home(self) -> str:
        """The folder or URI under which every table of this pipeline lies."""
        return f"{self.location(self.warehouse).rstrip('/')}/{self.name}"

    @property
    def docs_folder(self) -> Path | None:
        """The folder in which full checks in Dagster write the Data Docs; None if they write none."""
        return None if self.settings.data_docs is None else self.file.parent / self.settings.data_docs

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result, in their order."""
        if self.select is None:
            return self._default_outputs()
        parsed = [parse_expression(text) for text in self.select]
        return tuple(Output(e.name or "", e.text, e.plain) for e in parsed)

    @cached_property
    def key_outputs(self) -> tuple[Output, ...]:
        """The columns of a result key of one's choice, in their order; empty if there is none."""
        if self.result_key is None or isinstance(self.result_key, str):
            return ()
        parsed = [parse_expression(text) for text in self.result_key]
        return tuple(Output(e.name or "", e.text, e.plain) for e in parsed)

    @property
    def computed(self) -> tuple[Output, ...]:
        """All columns of the result that expressions of the file give."""
        return (*self.outputs, *self.key_outputs)

    @property
    def computes(self) -> bool:
        """Whether one of them is more than a column of one side as it is, so that computing it may fail."""
        return not all(output.plain for output in self.computed)

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
        """Per side, the columns that the result depends on and the hashes cover, in the order of the schema."""
        if self.select is None:
            return {Side.LEFT: self.left.columns, Side.RIGHT: self.right.columns}
        names: dict[Side, set[str]] = {Side.LEFT: set(), Side.RIGHT: set()}
        for text in self.select:
            for read in parse_expression(text).reads:
                side, column = self.resolve(read)
                names[side].add(column.name)
        return {side: tuple(c for c in self.side(side).columns if c.name in names[side]) for side in Side}

    def resolve(self, read: tuple[str, ...]) -> tuple[Side, Column]:
        """Returns the side and column that a path in `select` refers to."""
        if read[0].lower() in ("left", "right"):
            side = Side(read[0].lower())
            column = self._column(side, read[1]) if len(read) > 1 else None
            if column is None:
                have = ", ".join(c.name for c in self.columns_of(side))
                raise SqlTextError(f"{'.'.join(read)!r} is not a column of the {side} schema; it has {have}")
            return side, column
        found = [(side, c) for side in Side if (c := self._column(side, read[0])) is not None]
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
                raise problem(
                    f"there is no stage {name!r}; stages are {', '.join(stages)}", "settings", "strategy", name
                )
        return self

    @model_validator(mode="after")
    def _warehouse_can_be_written(self) -> PipelineSpec:
        odd = sorted(set(self.home) & UNWRITABLE)
        if odd and "://" not in self.home:
            raise problem(
                f"{self.home} has {' '.join(odd)} in it, which Delta tables cannot be written under", "warehouse"
            )
        return self

    @model_validator(mode="after")
    def _sides_fit(self) -> PipelineSpec:
        count, keys = len(self.left.foreign_key), len(self.right.key)
        if count != keys:
            raise problem(
                f"foreign_key has {count} component(s), the right key {keys} ({', '.join(self.right.key)})",
                "left",
                "foreign_key",
            )
        for i, (text, key) in enumerate(zip(self.left.foreign_key, self.right.key_columns, strict=True)):
            expression = parse_expression(text)
            column = self.left.column(expression.reads[0][0]) if expression.plain else None
            if column is not None and len(expression.reads[0]) == 1 and column.type.upper() != key.type.upper():
                raise problem(
                    f"foreign_key {text!r} is {column.type}, the right key {key.name!r} is {key.type}; "
                    f"make the types equal, for example with CAST({text} AS {key.type})",
                    "left",
                    "foreign_key",
                    i,
                )
        for place, texts in (("select", self.select), ("result_key", self.result_key)):
            self._check_named(place, () if isinstance(texts, str) else texts or ())
        if self.select is None:
            clash = [o.name for o in self.outputs]
            if len({n.lower() for n in clash}) < len(clash):
                raise problem("the default select would name two columns alike; write a select", "right", "schema")
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> PipelineSpec:
        if self.left.valid_from is not None:
            raise problem("valid_from is of the right side, whose versions a left row sees", "left", "valid_from")
        if self.as_of_batch and self.left.column(BY_BATCH) is not None:
            raise problem("as_of: batch means the batch, and the left schema has a column 'batch': rename it", "as_of")
        if self.as_of is None or self.as_of_batch:
            if self.right.valid_from is not None:
                raise problem(
                    "valid_from goes with as_of, a SQL expression over the left columns", "right", "valid_from"
                )
        else:
            check_row_expression(self.left, self.as_of, "as_of")
            if self.right.is_snapshot:
                raise problem("a snapshot does not tell since when its rows hold; as_of: batch goes with it", "as_of")
            if self.right.valid_from is None:
                if self.right.sequence_by is None:
                    raise problem("valid_from is missing: since when does a version hold?", "right")
                valid = {"valid_from": self.right.sequence_by}
                object.__setattr__(self, "right", self.right.model_copy(update=valid))
        if self.history is not None and (self.as_of is None or self.as_of_batch):
            raise problem("history goes with as_of, a SQL expression over the left columns", "history")
        if self.as_of is not None and self.outer:
            raise problem("as_of goes with inner and left: which version of a right row would stand alone?", "as_of")
        return self

    def _check_named(self, place: str, texts: Sequence[str]) -> None:
        """Refuses expressions that cannot be columns of the result; `place` is their key in the pipeline file."""
        names: set[str] = set()
        for i, text in enumerate(texts):
            try:
                expression = parse_expression(text)
                reads = [self.resolve(read) for read in expression.reads]
                refuse_moments(text, self._type_of)
            except SqlTextError as error:
                raise problem(f"{text!r}: {error}", place, i) from None
            if expression.name is None:
                raise problem(f"{text!r} needs a name: write '{text} AS some_name'", place, i)
            if expression.name.lower() in names:
                raise problem(f"two columns of the result are called {expression.name!r}", place, i)
            if expression.name.lower().startswith("_fk_"):
                raise problem(f"{expression.name!r}: names that start with _fk_ are the pipeline's own", place, i)
            names.add(expression.name.lower())
            others = [f"{side}.{c.name}" for side, c in reads if c.name not in self.side(side).key]
            if place == "result_key" and others:
                raise problem(f"{text!r} reads {others[0]}, which is no key column", place, i)

    @model_validator(mode="after")
    def _equal_values_are_alike_sensitive(self) -> PipelineSpec:
        """Makes foreign key and right key sensitive together: a foreign key has the values of the right key."""
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
                    raise problem(
                        f"{one.type} names column {unknown[0]!r}, which {table} has not; it has {', '.join(names)}",
                        "expectations",
                        table,
                        i,
                        "kwargs",
                    )
        return self
