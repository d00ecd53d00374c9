"""The pipeline file as frozen values: what every kind has.

A `PipelineSpec` is one pipeline, a `SideSpec` one input table, an `Output` one column of the result. The keys of a kind
are in a subclass, in the folder of the kind (`Kind.spec`); those of every join of two inputs are in `spec.join`.
The contract is `docs/reference/pipeline-file.md`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, model_validator

from fk_pipeline.contract import Kind, loaded
from fk_pipeline.identity import Side
from fk_pipeline.kinds.registry import FIRST, KINDS, kind_named
from fk_pipeline.spec.base import Frozen, problem
from fk_pipeline.spec.described import GroupName, Meta, Owners, Tags, of_columns
from fk_pipeline.spec.inputs import ClockSpec, SideSpec
from fk_pipeline.spec.paths import folder_of, place_of
from fk_pipeline.spec.settings import OwnSuites, Settings
from fk_pipeline.spec.sql import Column
from fk_pipeline.words import did_you_mean, listed_for

UNKNOWN_TYPE = "expression"
"""Stands for the type of an expression where only Spark can tell it."""

UNWRITABLE = frozenset("[]{}%?#*^|<>\\")
"""Characters in a local path that delta-rs takes for parts of a URL."""


CATALOG_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", re.ASCII)
"""A table in Spark's catalog: `schema.table` or `catalog.schema.table`."""


@dataclass(frozen=True)
class Output:
    """One column of the result: its name and the SQL that computes it."""

    name: str
    sql: str
    plain: bool
    """It is a column as it is, so that computing it cannot fail."""


def no_kind(name: object) -> str:
    """Returns the problem of a name that no kind has."""
    return f"{name!r} is not possible; it must be {' or '.join(map(repr, KINDS))}{did_you_mean(name, KINDS)}"


def registered(name: str) -> str:
    """Returns the name of a kind if the registry has it."""
    if name not in KINDS:
        raise problem(no_kind(name))
    return name


def _in_catalog(name: str | None) -> str | None:
    if name is not None and not CATALOG_NAME.fullmatch(name):
        raise problem(f"{name!r} is no name of Spark's catalog: schema.table, of letters, digits and _")
    return name


class PipelineSpec(Frozen):
    """One pipeline, as its file describes it.

    What the loader adds: `file`; `texts`, the files that it read, each with a hash of its text (`spec.edited`); and
    `own_settings`, the settings that `spec.load.with_settings` gave in place of those in the file.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)
    """Of the folder of the tables, and of Dagster's assets."""
    kind: Annotated[str, AfterValidator(registered)] = FIRST
    """What the pipeline computes."""
    warehouse: str = Field(default="warehouse", min_length=1)
    """Folder or URI; the tables lie in `<warehouse>/<name>/`."""
    register_: Annotated[str | None, AfterValidator(_in_catalog)] = Field(default=None, alias="register")
    """The result's name in Spark's catalog, `schema.table` or `catalog.schema.table`."""
    on_bad_record: Literal["quarantine", "fail"] = "quarantine"
    """An unreadable record goes to the quarantine, or stops the stage."""
    schema_changes: Literal["evolve", "ignore", "fail"] = "evolve"
    """When a source sends other fields, or a `schema` gets columns."""
    expectations: OwnSuites = Field(default_factory=OwnSuites)
    """Your own, per input and of the result."""
    settings: Settings = Field(default_factory=Settings)
    """Tuning."""
    description: str | None = None
    """Of the result, as Markdown, for Dagster."""
    descriptions: dict[str, str] = Field(default_factory=dict)
    """Of the result's columns; default: those of the input."""
    owners: Owners = ()
    """E-mail addresses and `team:NAME`, for Dagster."""
    tags: Tags = Field(default_factory=dict)
    """Of Dagster's assets."""
    group: GroupName | None = None
    """Of Dagster's assets, its parts separated by `/`; default: `name`."""
    meta: Meta = Field(default_factory=dict)
    """More that Dagster shows of the result."""
    file: Path = Field(default=Path("pipeline.yaml"), exclude=True)
    texts: tuple[tuple[Path, str], ...] = Field(default=(), exclude=True)
    own_settings: dict[str, Any] = Field(default_factory=dict, exclude=True)

    @property
    def definition(self) -> Kind:
        """The definition of its kind: inputs, tables, stages."""
        return kind_named(self.kind)

    @property
    def has_sensitive(self) -> bool:
        """Whether any column of any input is sensitive."""
        return any(self.side(side).sensitive for side in self.sides)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The names of its inputs, in the order of the pipeline file."""
        return tuple(source.name for source in self.definition.inputs)

    @property
    def clocks(self) -> dict[Side, ClockSpec]:
        """The inputs that are clocks, by name."""
        return {side: clock for side in self.sides if isinstance(clock := self.side(side), ClockSpec)}

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result, in their order."""
        raise NotImplementedError

    def reads(self, output: Output) -> tuple[tuple[Side, Column], ...]:
        """Returns the columns of inputs that a column of the result is made of."""
        raise NotImplementedError

    def result_key_outputs(self) -> Sequence[tuple[str, str | None, bool]]:
        """Returns the columns of the key of the result, for a pipeline that reads it.

        Returns:
            Per column its name for people, the column of `select` that has its values (None if none has), and whether
            it may be null.
        """
        raise NotImplementedError

    @property
    def told_apart(self) -> str:
        """SQL (condition) over the stored rows of the result: those that the key tells apart; empty: all of them."""
        return ""

    def sql_of(self, stage: str, column: str) -> str | None:
        """Returns the SQL that computes a column of a stage's table; None if it is that of another table."""
        outputs = self.outputs if stage == self.definition.result_stage else ()
        return next((output.sql for output in outputs if output.name == column != output.sql), None)

    @property
    def selected(self) -> dict[Side, tuple[Column, ...]]:
        """Per input, the columns that the result depends on and the hashes cover, in the order of the schema."""
        raise NotImplementedError

    def chosen(self, side: Side) -> tuple[Column, ...]:
        """Returns the columns of an input that the file names for the result; none if it takes all, unnamed."""
        return self.selected[side]

    @cached_property
    def sensitive_outputs(self) -> frozenset[str]:
        """The columns of the result whose expression reads a sensitive column."""
        secret = {side: self.side(side).sensitive for side in self.sides}
        return frozenset(o.name for o in self.outputs if any(c.name in secret[side] for side, c in self.reads(o)))

    def side(self, side: Side) -> SideSpec:
        """Returns an input by its name."""
        spec: SideSpec = getattr(self, side)
        return spec

    def location(self, path: str) -> str:
        """Returns a `path` or `warehouse` of the file as an absolute path without `..`; a URI unchanged."""
        return path if "://" in path else place_of(os.path.join(folder_of(self.file), path))  # noqa: PTH118 - of every landing file

    @property
    def home(self) -> str:
        """The folder or URI under which every table of this pipeline lies."""
        return f"{self.location(self.warehouse).rstrip('/')}/{self.name}"

    @property
    def key_outputs(self) -> tuple[Output, ...]:
        """The columns of a result key of one's choice, in their order; empty if there is none."""
        return ()

    @property
    def computes(self) -> bool:
        """Whether a column of the result or its key is more than a column as it is, so that computing it may fail."""
        return not all(output.plain for output in (*self.outputs, *self.key_outputs))

    @model_validator(mode="wrap")
    @classmethod
    def _as_its_kind_has_it(cls, given: Any, handler: ModelWrapValidatorHandler[PipelineSpec]) -> PipelineSpec:
        """Validates a pipeline by the model of its kind."""
        if cls is not PipelineSpec or not isinstance(given, Mapping):
            return handler(given)
        kind = given.get("kind", FIRST)
        if not isinstance(kind, str) or kind not in KINDS:
            raise problem(no_kind(kind), "kind")
        spec: type[PipelineSpec] = loaded(kind_named(kind).spec)
        return spec.model_validate(given)

    def check_outputs(self) -> None:
        """Refuses columns of the result that cannot be computed."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _fits(self) -> PipelineSpec:
        _check_stages(self)
        _check_warehouse(self)
        self.check_outputs()
        descriptions = of_columns(self.descriptions, [output.name for output in self.outputs], "result")
        object.__setattr__(self, "descriptions", descriptions)
        _check_expectations(self)
        _check_statistics(self)
        return self


def _check_stages(spec: PipelineSpec) -> None:
    """Refuses a strategy for a stage that the pipeline has not."""
    stages, named = spec.definition.stage_names, spec.settings.strategy
    for name in named if isinstance(named, dict) else ():
        if name not in stages:
            raise problem(
                f"there is no stage {name!r}; stages are {listed_for(name, stages)}", "settings", "strategy", name
            )


def _check_warehouse(spec: PipelineSpec) -> None:
    """Refuses a warehouse under which no Delta table can be written."""
    odd = sorted(set(spec.home) & UNWRITABLE)
    if odd and "://" not in spec.home:
        raise problem(f"{spec.home} has {' '.join(odd)} in it, which Delta tables cannot be written under", "warehouse")


def _check_statistics(spec: PipelineSpec) -> None:
    """Refuses statistics of a column that the result has not, or whose values may not stand in a log."""
    names = [output.name for output in spec.outputs]
    for i, name in enumerate(spec.settings.statistics_columns or ()):
        place = ("settings", "statistics_columns", i)
        if name not in names:
            raise problem(f"column {name!r} is not in the result; it has {', '.join(names)}", *place)
        if name in spec.sensitive_outputs:
            raise problem(f"column {name!r} is sensitive: statistics would put its values into a log", *place)


def _check_expectations(spec: PipelineSpec) -> None:
    """Refuses an expectation of a column that its table has not."""
    known = {str(side): [c.name for c in spec.side(side).columns] for side in spec.sides}
    known[spec.definition.result.name] = [o.name for o in spec.outputs]
    for table, names in known.items():
        for i, expectation in enumerate(spec.expectations.of(table)):
            unknown = [column for column in expectation.columns if column not in names]
            if unknown:
                have = f"it has {listed_for(unknown[0], names)}"
                raise problem(
                    f"{expectation.type} names column {unknown[0]!r}, which {table} has not; {have}",
                    "expectations",
                    table,
                    i,
                    "kwargs",
                )
