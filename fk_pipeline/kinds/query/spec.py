"""The parts of a pipeline file that only `kind: query` has: inputs by name, one SELECT, and how it is refreshed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, PrivateAttr, RootModel, field_validator, model_validator

from fk_pipeline.blocks.select.block import Block
from fk_pipeline.blocks.select.lineage import plain_read, sql_of
from fk_pipeline.blocks.select.parsing import inputs_named, parse_query
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.contract import Kind
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.query.kind import QUERY, RESULT
from fk_pipeline.kinds.query.stages_of import kind_of
from fk_pipeline.spec.base import Strings, problem
from fk_pipeline.spec.inputs import CLOCK, CLOCK_TIMES, INPUT_NAME, RESULT_KEY, ClockSpec, SideSpec
from fk_pipeline.spec.model import Output, PipelineSpec
from fk_pipeline.spec.settings import OwnExpectation, OwnSuites
from fk_pipeline.spec.sql import Column, SqlTextError, parse_columns, parse_expression, quote
from fk_pipeline.words import listed_for


class QuerySuites(OwnSuites):
    """The user's expectations of the result."""

    result: tuple[OwnExpectation, ...] = ()
    """Of the result."""


class QuerySpec(PipelineSpec):
    """One query that is kept up to date, as its pipeline file describes it."""

    inputs: dict[str, SideSpec] = Field(min_length=1)
    """The tables, by their names in the query."""
    query: str = Field(min_length=1)
    """One SELECT in Spark's dialect."""
    refresh: Literal["auto", "incremental", "full"] = "auto"
    """`full` computes the whole, `incremental` what changed (else an error, but for the first time), `auto` the cheaper
    one."""
    key: Strings = ()
    """The columns that identify a row of the result, for its readers."""
    expectations: QuerySuites = Field(default_factory=QuerySuites)
    """Expectations of your own, of the result."""

    _unread: tuple[str, ...] = PrivateAttr(default=())

    @property
    def unread(self) -> tuple[str, ...]:
        """The inputs that the query does not read: they are left out."""
        return self._unread

    @model_validator(mode="before")
    @classmethod
    def _inputs_have_names(cls, given: Any) -> Any:
        inputs = given.get("inputs") if isinstance(given, dict) else None
        for name in inputs if isinstance(inputs, dict) else ():
            if not isinstance(name, str) or not INPUT_NAME.fullmatch(name):
                raise problem(f"{name!r} must start with a letter a-z and go on with a-z, 0-9 and _", "inputs", name)
        return given

    @field_validator("inputs", mode="before")
    @classmethod
    def _with_clocks(cls, given: Any) -> Any:
        clocks = {name: entry for name, entry in given.items() if _is_clock(entry)} if isinstance(given, dict) else {}
        return {**given, **_Clocks.model_validate(clocks).root} if clocks else given

    @staticmethod
    def inputs_named(text: str) -> dict[str, int]:
        """Returns the inputs that a query needs, by name, each with its line; see `parsing.inputs_named`."""
        return inputs_named(text)

    @staticmethod
    def columns_of(text: str, schemas: Mapping[str, str], clocks: Collection[str] = ()) -> tuple[str, ...]:
        """Returns the columns of the result of a query over inputs with these schemas, and over some clocks.

        Raises:
            SqlTextError: it cannot be kept up to date, or reads a column that no input has.
        """
        given = {name: parse_columns(schema) for name, schema in schemas.items()}
        given |= {name: parse_columns(CLOCK_TIMES) for name in clocks}
        return parse_query(text, given, single=clocks).columns

    @property
    def sql(self) -> str:
        """The text of the query."""
        return self.query

    @cached_property
    def blocks(self) -> Query:
        """The blocks of the query."""
        keys = {name: _identifying(side) for name, side in self.inputs.items()}
        visible = {name: _visible(side) for name, side in self.inputs.items()}
        return parse_query(self.query, visible, keys, {*self.clocks}, RESULT)

    def block_of(self, stage: str, _: object = None) -> Block:
        """Returns the block of a stage."""
        return self.blocks.block(stage)

    @cached_property
    def definition(self) -> Kind:
        """The definition of the kind, with a stage per block."""
        try:
            return kind_of(self.blocks, self.inputs)
        except SqlTextError:  # `check_outputs` tells
            return QUERY

    @property
    def sides(self) -> tuple[Side, ...]:
        """The names of its inputs, in the order of the pipeline file."""
        return tuple(map(Side, self.inputs))

    def side(self, side: Side) -> SideSpec:
        """Returns an input by its name."""
        return self.inputs[side]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result."""
        query = self.blocks
        return tuple(Output(name, quote(name), query.is_plain(name)) for name in query.columns)

    def sql_of(self, stage: str, column: str) -> str | None:
        """Returns the SQL that computes a column of a block; None if it is that of an input or another block."""
        block = self.blocks.block(stage)
        return sql_of(block, column) if column in block.columns and plain_read(block, column) is None else None

    def reads(self, output: Output) -> tuple[tuple[Side, Column], ...]:
        """Returns the columns of inputs that a column of the result is made of."""
        pairs = sorted(self.blocks.inputs_of(output.name))
        columns = ((Side(name), self.inputs[name].column(column)) for name, column in pairs)
        return tuple((side, column) for side, column in columns if column is not None)

    def result_key_outputs(self) -> Sequence[tuple[str, str | None, bool]]:
        """Returns the columns of `key`.

        Raises:
            PipelineFileError: the file has none.
        """
        if not self.key:
            raise PipelineFileError(
                "the query has no key",
                where=str(self.file),
                why="another pipeline reads its result, whose rows it must tell apart",
                fix=f"say which columns identify a row, for example key: {self.blocks.columns[0]}",
            )
        return [(name, name, False) for name in self.key]

    @property
    def selected(self) -> dict[Side, tuple[Column, ...]]:
        """The columns of the inputs that the query reads."""
        return {side: self.inputs[side].columns for side in self.sides}

    def check_outputs(self) -> None:
        """Refuses a query that cannot be kept up to date; leaves to the inputs the columns that it reads."""
        try:
            read = self.blocks.inputs
        except SqlTextError as error:
            raise problem(str(error), "query") from None
        for name in self.key:
            if name not in self.blocks.columns:
                have = listed_for(name, self.blocks.columns)
                raise problem(f"key column {name!r} is no column of the result; it has {have}", "key")
        for name, side in self.inputs.items():
            if not side.has_versions:
                what = "an input has one of pipeline: FILE, table: PATH, path: FOLDER and clock: 1 day"
                raise problem(what, "inputs", name)
        self._unread += tuple(name for name in self.inputs if name not in read)
        narrow = {name: _narrow(side, read[name]) for name, side in self.inputs.items() if name in read}
        object.__setattr__(self, "inputs", narrow)


def _visible(side: SideSpec) -> tuple[Column, ...]:
    """Returns the columns of an input that a query can name."""
    if side.format == CLOCK:
        return tuple(c for c in side.columns if c.name != CLOCK)
    return tuple(c for c in side.columns if c.name != RESULT_KEY or not side.key_of_result)


def _identifying(side: SideSpec) -> list[str]:
    """Returns the columns that identify a row of an input; none of a clock, which has one row."""
    return [] if side.format == CLOCK else [key.name for key in side.key_columns]


def _is_clock(given: Any) -> bool:
    return isinstance(given, dict) and CLOCK in given


class _Clocks(RootModel[dict[str, ClockSpec]]):
    """The inputs that are clocks; they are validated apart, so that an error says what a clock has."""


def _narrow(side: SideSpec, read: set[str]) -> SideSpec:
    """Returns an input with its key and the columns that a query reads."""
    own = {name.lower() for name in (*side.key, *side.key_of_result)}
    own |= {path[0].lower() for path in parse_expression(side.where).reads} if side.where else set()
    columns = [c for c in side.columns if c.name.lower() in read | own]
    names = {c.name for c in columns}
    return side.model_copy(
        update={
            "schema_": ", ".join(f"{c.quoted} {c.type}" for c in columns),
            "sensitive": tuple(name for name in side.sensitive if name in names),
            "descriptions": {name: text for name, text in side.descriptions.items() if name in names},
        }
    )
