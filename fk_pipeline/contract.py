"""What a kind of join is, as data: its inputs, its tables and its stages. No Spark.

The engine runs, plans, rebuilds, repairs and shows any kind by what stands here, and names none. A kind is one object
of `Kind`; `fk_pipeline.kinds.registry` finds it by its name. What a kind does, beside what it is, is named by a
reference (`module:function`) that is loaded when it is needed, so that a plan or a completion starts quickly.

A stage is a function from a `Reader` to a list of effects (`fk_pipeline.effects`): it says what must hold, and the
engine chooses how that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from fk_pipeline.identity import Side


class Role(StrEnum):
    """What a table is for; how it is rebuilt, repaired, written and read follows from it."""

    LOG = "log"
    """What landed, one partition per batch. Only the landing files make it anew."""
    STATE = "state"
    """The current version of every key, carried from batch to batch."""
    INDEX = "index"
    """Finds rows of a state by another key. Written before the state, read after it, so it never knows too little."""
    MESSAGES = "messages"
    """What a batch asks or answers, one partition per batch; the stage makes it anew when it runs again."""
    RESULT = "result"
    """What users read, one row per key of the result."""
    REJECTED = "rejected"
    """Records that could not be used. Several stages write it."""


class Source(StrEnum):
    """What a rebuild reads."""

    CHANGELOG = "changelog"
    LANDING = "landing"


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes:
        name: in the pipeline file.
        stage: the stage that reads its landing files.
        log: the table that they come to.
        derives: of a pipeline (`PipelineSpec`), the columns that the log has besides those of the source: by name the
            SQL over a row. All are null where one is.
        derived_as: the key of the pipeline file that they are written under.
    """

    name: Side
    stage: str
    log: str
    derives: Callable[[Any], dict[str, str]] = lambda _: {}
    derived_as: str = ""


@dataclass(frozen=True)
class TableDef:
    """One table of a kind.

    Attributes:
        name: of its folder.
        role: what it is for.
        stage: the stage that writes it; None where several do.
        of: the input whose rows a log or a state keeps.
    """

    name: str
    role: Role
    stage: str | None = None
    of: Side | None = None


@dataclass(frozen=True)
class StageDef:
    """One stage. It is called like its main table.

    Attributes:
        name: of the stage, its main table, its asset and its Delta commits.
        upstream: the stages whose output for a batch it reads; it is due when one of them runs again.
        reads: the tables whose rows it looks at; what has landed aside.
        counts: by the name that is plotted, the counts of a batch which it is the sum of.
        looks_up_in: the table in which it looks up the rows that a batch concerns; default: the main table.
        index: the index that it needs for that.
        full_share: changed rows by the rows of that table, above which it reads and writes whole tables; None: it has
            no such choice.
        run: reference to the function of a `Reader` that returns the effects of the stage; empty where a stage does no
            more than to bring what landed into a log, which the engine does for every stage that reads landing files.
        concerns: reference to a function of a `Reader` that returns about how many rows of the result the batches
            concern; empty: these of its own tables only.
        evaluates: of a pipeline (`PipelineSpec`), the expressions of its file that `run` computes, as SQL.
    """

    name: str
    upstream: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    counts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    looks_up_in: str = ""
    index: str = ""
    full_share: float | None = None
    run: str = ""
    concerns: str = ""
    evaluates: Callable[[Any], Iterable[str]] = lambda _: ()


Named = TypeVar("Named", TableDef, StageDef)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of join.

    Attributes:
        name: `kind` in the pipeline file.
        inputs: in the order of the pipeline file.
        tables: from upstream to downstream, in the order in which a reader opens them.
        stages: in running order.
        depends_on: of a pipeline (`PipelineSpec`), the parts of its file that this kind alone has, as text.
        rebuilt_by: by such a part, the stages that a rebuild from the changelogs makes anew when it is edited, with all
            that is downstream. An edit of a part that is not named needs the landing files.
        keys: reference to a function of pipeline and table that returns the columns (name, type) which a row of the
            table is identified by, and the names of the sensitive ones; no columns where the table has no such key.
        lineage: reference to a function of pipeline and stage that returns, by column of the main table, the
            (stage, column) that its values come from.
        layout: reference to a function of a Spark session and a pipeline that returns its tables (`store.layout`), with
            the types that only Spark can tell.
        declared_layout: reference to a function of a pipeline that returns the same as far as its file alone tells.
        meaning: reference to a function of column and table that returns what a column of ours means, in a few words.
        views: by a table of which not all rows are stored, reference to a function of reader, ledger and pipeline that
            returns them all.
    """

    name: str
    inputs: tuple[Input, ...]
    tables: tuple[TableDef, ...]
    stages: tuple[StageDef, ...]
    depends_on: Callable[[Any], dict[str, str]]
    rebuilt_by: Mapping[str, tuple[str, ...]]
    keys: str
    lineage: str
    layout: str
    declared_layout: str
    meaning: str
    views: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def stage_names(self) -> tuple[str, ...]:
        """The stages by name, in running order."""
        return tuple(stage.name for stage in self.stages)

    @cached_property
    def result(self) -> TableDef:
        """The table that users read."""
        return next(table for table in self.tables if table.role is Role.RESULT)

    @cached_property
    def result_stage(self) -> str:
        """The stage that writes it."""
        assert self.result.stage is not None
        return self.result.stage

    def stage(self, name: str) -> StageDef:
        """A stage by name.

        Raises:
            KeyError: there is none of that name.
        """
        return _named(self.stages, name, f"kind {self.name} has no stage")

    def table(self, name: str) -> TableDef:
        """A table by name.

        Raises:
            KeyError: there is none of that name.
        """
        return _named(self.tables, name, f"kind {self.name} has no table")

    def input(self, side: Side) -> Input:
        """An input by its name in the pipeline file."""
        return next(one for one in self.inputs if one.name == side)

    def side_of(self, stage: str) -> Side | None:
        """The input whose landing files a stage reads; None where it reads none."""
        return next((one.name for one in self.inputs if one.stage == stage), None)

    def with_role(self, *roles: Role) -> tuple[str, ...]:
        """The tables for some purposes, in the order in which a reader opens them."""
        return tuple(table.name for table in self.tables if table.role in roles)

    @cached_property
    def proved(self) -> tuple[str, ...]:
        """The tables that a verification reads: the result, and all whose rows a stage looks at."""
        read = {name for stage in self.stages for name in stage.reads} | {self.result.name}
        return tuple(table.name for table in self.tables if table.name in read)

    def written_by(self, stage: str) -> tuple[str, ...]:
        """The tables that one stage alone writes, in the order of its commits: an index before its state."""
        own = [table for table in self.tables if table.stage == stage]
        return tuple(table.name for table in sorted(own, key=lambda one: one.role is not Role.INDEX))

    def in_order(self, stages: Iterable[str]) -> tuple[str, ...]:
        """Some stages in running order, each once."""
        wanted = set(stages)
        return tuple(name for name in self.stage_names if name in wanted)

    def downstream(self, stages: Iterable[str]) -> tuple[str, ...]:
        """Some stages and all that read what these write, in running order."""
        found = set(stages)
        for stage in self.stages:
            if found & set(stage.upstream):
                found.add(stage.name)
        return self.in_order(found)

    def rebuilds(self, source: Source) -> tuple[str, ...]:
        """The stages that a rebuild makes anew when nobody says which: all, or those that keep more than a log."""
        if source is Source.LANDING:
            return self.stage_names
        return self.in_order(t.stage for t in self.tables if t.stage is not None and t.role is not Role.LOG)

    @cached_property
    def rejecting(self) -> dict[str, str]:
        """By the origin of a rejected record (an input, or `join` for a pair of rows) the stage that rejected it."""
        return {**{one.name.value: one.stage for one in self.inputs}, "join": self.result_stage}


def _named(found: Iterable[Named], name: str, otherwise: str) -> Named:
    """The one of some stages or tables that has a name.

    Raises:
        KeyError: none has it; `otherwise` is what the error says before the name.
    """
    one = next((one for one in found if one.name == name), None)
    if one is None:
        raise KeyError(f"{otherwise} {name!r}")
    return one


def loaded(reference: str) -> Any:
    """What a reference (`module:name`) names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
