"""The parts of a pipeline file that only `kind: aggregate` has: groups, windows of time, and aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from fk_pipeline.blocks.aggregates import computed_on_rows, parse_aggregate
from fk_pipeline.blocks.refresh.refreshed import OverTables
from fk_pipeline.blocks.select.block import Block
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.block import block_of
from fk_pipeline.kinds.aggregate.kind import AT, START, WINDOW_END, WINDOW_START, AggregateStage
from fk_pipeline.kinds.aggregate.windows import DAY_MICROS, MICROS, windows_of
from fk_pipeline.spec.base import Frozen, Strings, problem
from fk_pipeline.spec.clock import Zone
from fk_pipeline.spec.durations import Span, micros, span
from fk_pipeline.spec.input_checks import check_row_expression, columns_like
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.spec.model import Output, PipelineSpec
from fk_pipeline.spec.settings import OwnExpectation, OwnSuites
from fk_pipeline.spec.sql import Column, Expression, SqlTextError, body_of, parse_expression, quote, refuse_moments
from fk_pipeline.words import listed_for

UTC_ZONE = "UTC"


class TimeWindow(Frozen):
    """The windows of time in which rows count."""

    time: str = Field(min_length=1)
    """SQL: when a row happened, like `time` [of a side](#of-a-side)."""
    size: Span
    """How long a window is."""
    every: Span | None = None
    """How far apart windows start, at most `size`; default: `size`."""
    zone: Zone = UTC_ZONE
    """Where windows of whole days begin at midnight, `Europe/Berlin`. Only of TIMESTAMP."""

    @property
    def step(self) -> str:
        """How far apart the starts of two windows are."""
        return self.every or self.size

    @property
    def local(self) -> bool:
        """Whether windows are days of a time zone."""
        return self.zone != UTC_ZONE

    @model_validator(mode="after")
    def _windows_fit(self) -> TimeWindow:
        size, step = micros(span(self.size)), micros(span(self.step))
        if not size:
            raise problem("a window of no length has no rows", "size")
        if not step:
            raise problem("windows that begin at the same time are one", "every")
        if step > size:
            raise problem(f"{self.every} is longer than size, {self.size}: rows between would count nowhere", "every")
        if self.local and (size % DAY_MICROS or step % DAY_MICROS):
            raise problem(
                f"windows of whole days begin at midnight of a zone; {self.size} every {self.step} are counted from "
                "1970-01-01 in UTC: leave zone out",
                "zone",
            )
        return self


class AggregateSuites(OwnSuites):
    """The user's expectations of the input table and of the result."""

    input: tuple[OwnExpectation, ...] = ()
    """Of the rows of the input."""
    aggregated: tuple[OwnExpectation, ...] = ()
    """Of the result."""


class AggregateSpec(OverTables, PipelineSpec):
    """One aggregate, as its pipeline file describes it."""

    input: SideSpec
    """The input."""
    group_by: Strings = ()
    """SQL: the values that a group shares, null too. What is no column needs a name; default: none, with a window."""
    window: TimeWindow | None = None
    """The windows of time in which rows count."""
    aggregates: tuple[str, ...] = Field(min_length=1)
    """SQL: Spark's functions, each with a name, `count(*) AS n`. None may depend on the order of rows."""
    having: str | None = None
    """SQL: the groups that are in the result."""
    select: tuple[str, ...] | None = Field(default=None, min_length=1)
    """SQL: the result's columns, of groups, `window_start`, `window_end` and aggregates; default: all."""
    expectations: AggregateSuites = Field(default_factory=AggregateSuites)
    """Expectations of your own, per input and of the result."""

    @cached_property
    def groups(self) -> tuple[Expression, ...]:
        """The expressions of `group_by`; each has a name."""
        return tuple(map(parse_expression, self.group_by))

    @cached_property
    def measures(self) -> tuple[Expression, ...]:
        """The expressions of `aggregates`; each has a name."""
        return tuple(map(parse_aggregate, self.aggregates))

    @cached_property
    def computed_on_rows(self) -> tuple[str, ...]:
        """The SQL that the aggregates compute on each row of the input."""
        return tuple(dict.fromkeys(sql for text in self.aggregates for sql in computed_on_rows(text)))

    @cached_property
    def grouped_by(self) -> dict[str, str]:
        """Per name of a group, the SQL over a row of the input."""
        return {str(group.name): body_of(group.text) for group in self.groups}

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of the groups."""
        return tuple(self.grouped_by)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `select` and `having` may use, in the order of the default result."""
        window = () if self.window is None else (WINDOW_START, WINDOW_END)
        return (*self.group_names, *window, *(str(measure.name) for measure in self.measures))

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result, in their order."""
        parsed = [parse_expression(text) for text in self.select or map(quote, self.names)]
        return tuple(Output(expression.name or "", expression.text, expression.plain) for expression in parsed)

    def block_of(self, _: str, table_of: Callable[[str], Any]) -> Block:
        """Returns the result as a block; `table_of` returns the declaration of a table.

        Times of which it does not tell the type (`declared_layout`) are taken for TIMESTAMP.
        """
        types = dict(table_of(AggregateStage.TABLE).columns)
        known = types if types.get(AT, "").upper() in MICROS else {AT: "TIMESTAMP"}
        return block_of(self, windows_of(self, known))

    @property
    def computes(self) -> bool:
        """False: no row of the result is left out because computing it fails; the stage stops there."""
        return False

    def result_key_outputs(self) -> Sequence[tuple[str, str | None, bool]]:
        """Returns the columns of the key: groups, which may be null, and the start of the window."""
        keys = [*self.group_names, *([] if self.window is None else [WINDOW_START])]
        plain = {
            parse_expression(output.sql).reads[0][0].lower(): output.name for output in self.outputs if output.plain
        }
        return [(key, plain.get(key.lower()), self.window is None or key != WINDOW_START) for key in keys]

    @property
    def told_apart(self) -> str:
        """SQL (condition): of two windows that begin together, because the zone skipped a day, the longer one."""
        begins = next((name for key, name, _ in self.result_key_outputs() if key == WINDOW_START), None)
        return "" if begins is None or self.window is None or not self.window.local else f"{quote(begins)} = {START}"

    def reads(self, output: Output) -> tuple[tuple[Side, Column], ...]:
        """Returns the columns of the input that a column of the result is made of."""
        made_of = self._made_of
        names = [read[0].lower() for read in parse_expression(output.sql).reads]
        return tuple(dict.fromkeys((Side.INPUT, column) for name in names for column in made_of.get(name, ())))

    @cached_property
    def _made_of(self) -> Mapping[str, tuple[Column, ...]]:
        """Per name that `select` may use, in lower case, the columns of the input that it is made of."""
        time = () if self.window is None else self._columns(parse_expression(self.window.time).reads)
        made_of = {WINDOW_START: time, WINDOW_END: time}
        return made_of | {
            str(expression.name).lower(): self._columns(expression.reads)
            for expression in (*self.groups, *self.measures)
        }

    def _columns(self, reads: Iterable[tuple[str, ...]]) -> tuple[Column, ...]:
        columns = [self.input.column(read[0]) for read in reads]
        return tuple(dict.fromkeys(column for column in columns if column is not None))

    @cached_property
    def selected(self) -> dict[Side, tuple[Column, ...]]:
        """The columns of the input that the aggregates read."""
        read = {column for measure in self.measures for column in self._columns(measure.reads)}
        return {Side.INPUT: tuple(column for column in self.input.columns if column in read)}

    def check_outputs(self) -> None:
        """Refuses groups, aggregates, `having` and `select` that do not fit the input and each other."""
        if not self.group_by and self.window is None:
            raise problem("there are neither groups nor windows: give group_by, or window", "group_by")
        if self.window is not None:
            check_row_expression(self.input, self.window.time, "window", "time")
        taken: set[str] = set() if self.window is None else {WINDOW_START, WINDOW_END}
        for i, text in enumerate(self.group_by):
            self._take(taken, check_row_expression(self.input, text, "group_by", i), "group_by", i)
        for i, text in enumerate(self.aggregates):
            try:
                expression = parse_aggregate(text)
                refuse_moments(text, self.input.type_of)
            except SqlTextError as error:
                raise problem(f"{text!r}: {error}", "aggregates", i) from None
            for read in expression.reads:
                if self.input.column(read[0]) is None:
                    lacks = f"which is not in the schema{columns_like(read[0], self.input)}"
                    raise problem(f"{text!r} reads column {read[0]!r}, {lacks}", "aggregates", i)
            self._take(taken, expression, "aggregates", i)
        if self.having is not None:
            self._check_names(self.having, "having")
        taken = set()
        for i, text in enumerate(self.select or ()):
            self._take(taken, self._check_names(text, "select", i), "select", i)

    def _check_names(self, text: str, *place: str | int) -> Expression:
        """Returns an expression over the names of the result; refuses another."""
        known = {name.lower() for name in self.names}
        try:
            expression = parse_expression(text)
            refuse_moments(text, lambda _: None)
        except SqlTextError as error:
            raise problem(f"{text!r}: {error}", *place) from None
        for read in expression.reads:
            if read[0].lower() not in known:
                raise problem(f"{text!r}: there is no {read[0]!r}; there are {listed_for(read[0], self.names)}", *place)
        return expression

    @staticmethod
    def _take(taken: set[str], expression: Expression, *place: str | int) -> None:
        """Refuses a column without a name of its own."""
        name = expression.name
        if not name:
            raise problem(f"{expression.text!r} needs a name: write '{expression.text} AS some_name'", *place)
        if name.lower() in taken:
            raise problem(f"two columns are called {name!r}", *place)
        if name.lower().startswith("_fk_"):
            raise problem(f"{name!r}: names that start with _fk_ are the pipeline's own", *place)
        taken.add(name.lower())

    @model_validator(mode="after")
    def _times_fit(self) -> AggregateSpec:
        if self.input.valid_from is not None:
            why = "valid_from is of the right side of a join, whose versions a left row sees"
            raise problem(why, "input", "valid_from")
        return self
