"""The pipeline file as frozen values: the inputs of one join, the kind of join, and the selected columns.

A `PipelineSpec` is one join, a `SideSpec` one input table, an `Output` one column of the result. The keys that only one
kind of join has are in a subclass, in the folder of the kind (`Kind.spec`).
The contract is `docs/reference/pipeline-file.md`.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from fk_pipeline.contract import Kind, loaded
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.registry import FIRST, KINDS, kind_named
from fk_pipeline.spec.base import Frozen, problem
from fk_pipeline.spec.durations import Length
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.spec.settings import OwnSuites, Settings
from fk_pipeline.spec.sql import (
    Column,
    SqlTextError,
    parse_expression,
    quote,
    refuse_moments,
)

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
    """The kind of join."""
    join: Literal["inner", "left", "outer"]
    """What happens to rows without a match: left out; left rows kept with nulls on the right; or also right rows kept,
    with nulls on the left."""
    left: SideSpec
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
        reads = {output.name: map(self.resolve, parse_expression(output.sql).reads) for output in self.outputs}
        return frozenset(name for name, found in reads.items() if any(self.is_secret(*read) for read in found))

    def is_secret(self, side: Side, column: Column) -> bool:
        """Returns whether a column that the result may read is sensitive."""
        return column.name in self.side(side).sensitive

    @property
    def inner(self) -> bool:
        """Whether unmatched left rows are left out of the result."""
        return self.join == "inner"

    @property
    def outer(self) -> bool:
        """Whether right rows to which no left row refers are in the result."""
        return self.join == "outer"

    def columns_of(self, side: Side) -> tuple[Column, ...]:
        """Returns the columns of a side that expressions of the result may name."""
        return self.side(side).columns

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
        return (*self.definition.input(side).derives(self).values(), *own)

    def with_settings(self, **settings: Any) -> PipelineSpec:
        """Returns the same pipeline with other settings.

        Raises:
            PipelineFileError: one of the settings is wrong.
        """
        try:
            changed = type(self.settings).model_validate(self.settings.model_dump() | settings)
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

    @property
    def key_outputs(self) -> tuple[Output, ...]:
        """The columns of a result key of one's choice, in their order; empty if there is none."""
        return ()

    @property
    def keeps(self) -> Length | None:
        """How far back what may still be asked goes, at least; None: everything is kept."""
        return None

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

    @model_validator(mode="wrap")
    @classmethod
    def _as_its_kind_has_it(cls, given: Any, handler: ModelWrapValidatorHandler[PipelineSpec]) -> PipelineSpec:
        """Validates a pipeline by the model of its kind."""
        if cls is not PipelineSpec or not isinstance(given, Mapping):
            return handler(given)
        kind = given.get("kind", FIRST)
        if not isinstance(kind, str) or kind not in KINDS:
            raise problem(f"{kind!r} is not possible; it must be {' or '.join(map(repr, KINDS))}", "kind")
        spec: type[PipelineSpec] = loaded(kind_named(kind).spec)
        return spec.model_validate(given)

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
    def _select_fits(self) -> PipelineSpec:
        self.check_named("select", self.select or ())
        if self.select is None:
            clash = [o.name for o in self.outputs]
            if len({n.lower() for n in clash}) < len(clash):
                raise problem("the default select would name two columns alike; write a select", "right", "schema")
        return self

    def check_named(self, place: str, texts: Sequence[str]) -> None:
        """Refuses expressions that cannot be columns of the result; `place` is their key in the pipeline file."""
        names: set[str] = set()
        for i, text in enumerate(texts):
            try:
                expression = parse_expression(text)
                for read in expression.reads:
                    self.resolve(read)
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

    def make_alike_sensitive(self, equal: Iterable[tuple[str, str]]) -> None:
        """Makes columns of both sides sensitive together if they have the same values.

        Args:
            equal: pairs of expressions, one over each side, whose values are compared.
        """
        secret = {side: {*self.side(side).sensitive} for side in Side}
        pairs = []
        for texts in equal:
            reads = {}
            for side, text in zip(Side, texts, strict=True):
                found = (self.side(side).column(path[0]) for path in parse_expression(text).reads)
                reads[side] = {column.name for column in found if column is not None}
            pairs.append(reads)
        for _ in pairs:  # one pair may make another sensitive
            for reads in pairs:
                if any(reads[side] & secret[side] for side in Side):
                    secret = {side: secret[side] | reads[side] for side in Side}
        for side in Side:
            spec = self.side(side)
            ordered = tuple(column.name for column in spec.columns if column.name in secret[side])
            object.__setattr__(self, side.value, spec.model_copy(update={"sensitive": ordered}))

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
