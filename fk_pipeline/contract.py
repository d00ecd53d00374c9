"""A kind of join described as data: its inputs, its tables and its stages. Needs no Spark.

The engine runs, plans, rebuilds, repairs and shows every kind by this description, and names no kind itself. A kind is
one object of `Kind`; `fk_pipeline.kinds.registry` finds it by its name. The functions of a kind are named by references
(`module:function`) that are loaded when they are needed, so that a plan or a shell completion starts quickly.

A stage is a function from a `Reader` to a list of effects (`fk_pipeline.effects`): the effects state which rows must be
in the tables, and the engine chooses how they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from fk_pipeline.identity import Side
from fk_pipeline.proof import Proof


class Role(StrEnum):
    """The purpose of a table; it determines how the table is rebuilt, repaired, written and read."""

    LOG = "log"
    """The rows of landing files, one partition per batch. It can be rebuilt from the landing files only."""
    STATE = "state"
    """The current version of every key, carried from batch to batch."""
    INDEX = "index"
    """Finds rows of a state by another key. It is written before the state and read after it, so it lacks no entry."""
    MESSAGES = "messages"
    """The messages of a batch, one partition per batch; the stage replaces them when it runs again."""
    RESULT = "result"
    """The table that users read, one row per key of the result."""
    BLOCK = "block"
    """The rows of a part of the result, which later stages read; its commit says what they stand for."""
    REJECTED = "rejected"
    """Records that could not be used. Several stages write it."""


class Source(StrEnum):
    """The source that a rebuild reads."""

    CHANGELOG = "changelog"
    LANDING = "landing"


@dataclass(frozen=True)
class Input:
    """One input of a kind.

    Attributes:
        name: its name in the pipeline file.
        stage: the stage that reads its landing files; of a table that is read where it lies, the first to read it.
        log: the table that keeps the rows of the landing files; empty: it is a Delta table that stages read where it
            lies, and nothing of it is kept.
        derives: function of a pipeline (`PipelineSpec`) that returns the columns which a state has in addition to those
            of the source: per name, the SQL over a row.
        apart: whether one of them may be null and another not; otherwise all are null if one is.
        times: those of them that are times with which stages compute: a row without one, or with one out of range
            (`blocks.times`), goes to the quarantine.
        numbered: the column of the state with a number that its stage makes of the first of these times; empty: none.
        derived_as: function from such a column to the key of the pipeline file under which it is declared.
        computed: function of a pipeline that returns the SQL over a row which a later stage computes, each with the key
            of the pipeline file under which it is declared: a row on which it fails goes to the quarantine.
        shared: function of a pipeline that returns the input whose log also has the rows of this one, which then reads
            no landing files; None if it has its own.
        referred: whether rows of another input refer to its key.
        versions_by: function of a pipeline that returns the columns of the log which, beside the key, identify a row of
            the state, whose deletions are rows too; none: the state has the last row of each key.
    """

    name: Side
    stage: str
    log: str
    derives: Callable[[Any], dict[str, str]] = lambda _: {}
    apart: bool = False
    times: tuple[str, ...] = ()
    numbered: str = ""
    derived_as: Callable[[str], str] = lambda _: ""
    computed: Callable[[Any], dict[str, str]] = lambda _: {}
    shared: Callable[[Any], Side | None] = lambda _: None
    referred: bool = False
    versions_by: Callable[[Any], tuple[str, ...]] = lambda _: ()


@dataclass(frozen=True)
class TableDef:
    """One table of a kind.

    Attributes:
        name: name of the table and of its folder.
        role: its purpose.
        stage: the stage that writes it; None if several stages do.
        of: the input whose rows a log or a state keeps.
        index: of an index, reference to a function of a pipeline that returns its `effects.Index`.
    """

    name: str
    role: Role
    stage: str | None = None
    of: Side | None = None
    index: str = ""


@dataclass(frozen=True)
class StageDef:
    """One stage. It has the name of its main table.

    Attributes:
        name: name of the stage, its main table, its asset and its Delta commits.
        description: what the stage does, and its rule, in a few sentences of Markdown.
        upstream: the stages whose output for a batch it reads; it is due when one of them runs again.
        reads: the tables whose rows it reads, besides landing files.
        inputs: the inputs that it reads where they lie.
        counts: per name, the counts of a batch whose sum is shown; Dagster plots the first of them.
        looks_up_in: the table in which it looks up the rows that a batch concerns; default: the main table.
        index: the index that it needs for this look-up.
        full_share: ratio of changed rows to the rows of that table, above which the stage reads and writes whole
            tables; None: the stage has no such choice.
        run: reference to the function of a `Reader` that returns the effects of the stage; empty if the stage only
            reads landing files into a log, which the engine does for every stage that reads landing files.
        concerns: reference to a function of a `Reader` that returns the approximate number of rows of the result that
            the batches concern; empty: the number counts as 0.
        evaluates: function of a pipeline (`PipelineSpec`) that returns the expressions of its file which `run`
            computes, as SQL.
        views: reference to a function of a `rules.check_reader.CheckReader` and an `Evaluator` that returns the views
            (`rules.scan.View`) which check the tables that only this kind has; empty if there are none. Logs are
            checked without it.
    """

    name: str
    description: str
    upstream: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    inputs: tuple[Side, ...] = ()
    counts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    looks_up_in: str = ""
    index: str = ""
    full_share: float | None = None
    run: str = ""
    concerns: str = ""
    evaluates: Callable[[Any], Iterable[str]] = lambda _: ()
    views: str = ""


@dataclass(frozen=True)
class Removals:
    """The messages that tell which rows of the result a batch removes.

    A row without values in the key columns of the messages is removed without one.

    Attributes:
        table: the table of messages. A run whose rows of the result follow from messages that were there before commits
            nothing to it: the commit of the result then carries, under this name, the version that it had read
            (`effects.Upsert.metadata`).
        when: SQL (BOOLEAN) over it: the message removes the row of the result with its key.
        keys: reference to a function of a pipeline that returns the key columns (name, type) of the result which the
            messages have.
        batch: the column of the messages with the batch.
    """

    table: str
    when: str
    keys: str
    batch: str = "_fk_batch"


Named = TypeVar("Named", TableDef, StageDef)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of join.

    Attributes:
        name: `kind` in the pipeline file.
        spec: reference to the model of the pipeline file (a subclass of `PipelineSpec`), with the keys that only this
            kind has.
        inputs: in the order of the pipeline file.
        named_inputs: whether the pipeline file has any number of inputs, by name, under `inputs`; then inputs, tables
            and stages follow from the file (`PipelineSpec.definition`).
        tables: from upstream to downstream, in the order in which a reader opens them.
        stages: in running order.
        depends_on: function of a pipeline (`PipelineSpec`) that returns the parts of its file which only this kind has,
            as text.
        rebuilt_by: per such part, the stages that a rebuild from the changelogs rebuilds when the part is edited,
            together with all downstream stages. An edit of a part that is not named here needs the landing files.
        keys: reference to a function of pipeline and name of a table that returns the table (`store.schemas.Table`)
            with only the columns which identify a row, none if it has no such key, and the names of all sensitive
            columns.
        shown_keys: reference to a function of a pipeline that returns, per key column of the result, its name for
            people.
        proof: the definition of the result.
        suites: reference to the expectations (`rules.suites.Expectation`) of each stage.
        explain: reference to a function of reader, pipeline, ledger and the text of a key. It returns the story
            (`blocks.story.Story`) of the key.
        impact: reference to a function of reader, pipeline, ledger, the text of a right key or None, a file of changes
            or None, the largest number of keys to report, and the text of a time or None: since when the changed
            version holds, where versions do. With `named_inputs` the key is that of a row of any input, and after these
            comes the name of the input, or None. It returns the impact (`answers.AnyImpact`) of the change.
        lineage: reference to a function of pipeline and stage that returns, per column of the main table, the
            (stage, column) pairs that its values come from.
        layout: reference to a function of a Spark session and a pipeline that returns its tables (`store.layout`), with
            the types that only Spark can determine.
        declared_layout: reference to a function of a pipeline that returns the same, as far as the pipeline file alone
            determines it.
        meaning: reference to a function of column and table that returns the meaning of a column of the pipeline's own,
            in a few words.
        removals: the messages that tell which rows of the result a batch removes; None if there are none. Then every
            batch of a run has the removed rows of the run.
        stands_for: reference to a function of the metadata of the last commit to the result (`effects.Upsert.metadata`)
            that returns, by name, what the result stands for, as text; empty if there is nothing to tell.
        carried: reference to a function of the metadata of the last commit to a table that a rebuild has built, and of
            the tables that have taken their places already: per id and version there, id and version in place. It
            returns the metadata for the commit that puts the table in place; empty: without any.
        topology: reference to a function of a pipeline that returns its `answers.Topology`; empty if it has no rules.
        blocks: reference to a function of a pipeline that returns its `answers.Blocks`; empty if it has none.
        forecasts: reference to a function of pipeline, ledger, the files (`identity.LandedFile`) that a discovery found
            and did not record, and per due stage about how many rows its batches bring (None: not known), that returns
            the `answers.Forecast` of each of these stages that a refresh runs, by name; empty: none is made.
        forecast_of: reference to a function of the metadata of the last commit to the main table of a stage that
            returns the `answers.Forecast` which was made before that run; None if there is none.
        closing: reference to a function of a pipeline that returns its `answers.Closing`, None if it keeps everything;
            empty: every pipeline does.
        views: per table of which not all rows are stored, reference to a function of reader, ledger and pipeline that
            returns all its rows.
        views_in_process: per such table, reference to a function that returns the same without Spark
            (`store.rows_in_process.Relation`), of a function that opens a table, ledger and pipeline; None if it has no
            rows.
        explain_in_process: reference to a function as `explain` that needs no Spark: in place of the reader it has a
            function from the name of a table to its stored rows (`store.rows_in_process.Relation`). It raises
            `LeftToSpark` where it is not certain that Spark tells the same; empty: Spark tells every story.
        impact_in_process: such a function as `impact`.
        key_of_row: reference to a function of a pipeline and a row of its result, as JSON, that returns the text of the
            key by which `explain` is asked for it; empty: `explain_in_process` is, too.
    """

    name: str
    spec: str
    inputs: tuple[Input, ...]
    tables: tuple[TableDef, ...]
    stages: tuple[StageDef, ...]
    depends_on: Callable[[Any], dict[str, str]]
    rebuilt_by: Mapping[str, tuple[str, ...]]
    keys: str
    shown_keys: str
    proof: Proof
    suites: str
    explain: str
    impact: str
    lineage: str
    layout: str
    declared_layout: str
    meaning: str
    removals: Removals | None = None
    stands_for: str = ""
    carried: str = ""
    topology: str = ""
    blocks: str = ""
    forecasts: str = ""
    forecast_of: str = ""
    closing: str = ""
    views: Mapping[str, str] = field(default_factory=dict)
    views_in_process: Mapping[str, str] = field(default_factory=dict)
    explain_in_process: str = ""
    impact_in_process: str = ""
    key_of_row: str = ""
    named_inputs: bool = False

    @cached_property
    def stage_names(self) -> tuple[str, ...]:
        """The names of the stages, in running order."""
        return tuple(stage.name for stage in self.stages)

    @cached_property
    def result(self) -> TableDef:
        """The table that users read."""
        return next(table for table in self.tables if table.role is Role.RESULT)

    @cached_property
    def result_stage(self) -> str:
        """The stage that writes the result."""
        assert self.result.stage is not None
        return self.result.stage

    def stage(self, name: str) -> StageDef:
        """Returns a stage by its name.

        Raises:
            KeyError: there is no stage of that name.
        """
        return _named(self.stages, name, f"kind {self.name} has no stage")

    def table(self, name: str) -> TableDef:
        """Returns a table by its name.

        Raises:
            KeyError: there is no table of that name.
        """
        return _named(self.tables, name, f"kind {self.name} has no table")

    def input(self, side: Side) -> Input:
        """Returns an input by its name in the pipeline file."""
        return next(input_ for input_ in self.inputs if input_.name == side)

    def state_of(self, side: Side) -> TableDef:
        """Returns the state that has the current version of every key of an input."""
        return next(table for table in self.tables if table.role is Role.STATE and table.of == side)

    def keys_in_log(self, spec: Any, side: Side, keys: Sequence[str]) -> dict[str, str]:
        """Returns, per key column of the state of an input, its name in the log of the input."""
        names = (*(column.name for column in spec.side(side).key_columns), *self.input(side).versions_by(spec))
        return dict(zip(keys, names, strict=True))

    def indexed_by(self, index: TableDef) -> str:
        """Returns the name of the state that an index belongs to: that of the same stage."""
        return next(table.name for table in self.tables if table.role is Role.STATE and table.stage == index.stage)

    def side_of(self, stage: str) -> Side | None:
        """Returns the input whose landing files a stage reads into a log; None if it reads none."""
        return next((input_.name for input_ in self.logged if input_.stage == stage), None)

    @property
    def logged(self) -> tuple[Input, ...]:
        """The inputs whose rows a log keeps."""
        return tuple(input_ for input_ in self.inputs if input_.log)

    def inputs_of(self, stage: str) -> tuple[Side, ...]:
        """Returns the inputs that a stage reads: the one whose landing files it reads, or tables where they lie."""
        side = self.side_of(stage)
        return self.stage(stage).inputs if side is None else (side,)

    def readers_of(self, side: Side) -> tuple[str, ...]:
        """Returns the stages that read an input, in running order."""
        return tuple(name for name in self.stage_names if side in self.inputs_of(name))

    def with_role(self, *roles: Role) -> tuple[str, ...]:
        """Returns the names of the tables with one of these roles, in the order in which a reader opens them."""
        return tuple(table.name for table in self.tables if table.role in roles)

    @cached_property
    def proved(self) -> tuple[str, ...]:
        """The names of the tables that a verification reads: the result, and every table that a stage reads."""
        read = {name for stage in self.stages for name in stage.reads} | {self.result.name}
        return tuple(table.name for table in self.tables if table.name in read)

    def written_by(self, stage: str) -> tuple[str, ...]:
        """Returns the names of the tables that only this stage writes, in commit order: an index before its state."""
        own = [table for table in self.tables if table.stage == stage]
        return tuple(table.name for table in sorted(own, key=lambda table: table.role is not Role.INDEX))

    def in_order(self, stages: Iterable[str]) -> tuple[str, ...]:
        """Returns the given stages in running order, each once."""
        given = set(stages)
        return tuple(name for name in self.stage_names if name in given)

    def downstream(self, stages: Iterable[str]) -> tuple[str, ...]:
        """Returns the given stages and all stages downstream of them, in running order."""
        reached = set(stages)
        for stage in self.stages:
            if reached & set(stage.upstream):
                reached.add(stage.name)
        return self.in_order(reached)

    def rebuilds(self, source: Source) -> tuple[str, ...]:
        """Returns the stages that a rebuild rebuilds by default.

        From the landing files these are all stages; from the changelogs, those that write a table other than a log.
        """
        if source is Source.LANDING:
            return self.stage_names
        return self.in_order(t.stage for t in self.tables if t.stage is not None and t.role is not Role.LOG)

    @cached_property
    def rejecting(self) -> dict[str, str]:
        """Per origin of a rejected record (an input, or `join` for a pair of rows), the stage that rejects it."""
        if not self.with_role(Role.REJECTED):
            return {}
        return {**{input_.name: input_.stage for input_ in self.logged}, "join": self.result_stage}


def _named(parts: Iterable[Named], name: str, otherwise: str) -> Named:
    """Returns the stage or table that has a name.

    Raises:
        KeyError: none has the name; the message is `otherwise`, followed by the name.
    """
    match = next((part for part in parts if part.name == name), None)
    if match is None:
        raise KeyError(f"{otherwise} {name!r}")
    return match


def loaded(reference: str) -> Any:
    """Loads and returns the object that a reference (`module:name`) names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
