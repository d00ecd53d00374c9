"""The parts of a pipeline file that every join of two inputs has: both sides, the join, and the selected columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

from pydantic import Field

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.spec.base import problem
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.spec.model import Output, PipelineSpec
from fk_pipeline.spec.settings import OwnExpectation, OwnSuites
from fk_pipeline.spec.sql import Column, SqlTextError, parse_expression, quote, refuse_moments
from fk_pipeline.words import did_you_mean, listed_for


class JoinSuites(OwnSuites):
    """The user's expectations of the input tables and of the result."""

    left: tuple[OwnExpectation, ...] = ()
    """Of the rows of the left input."""
    right: tuple[OwnExpectation, ...] = ()
    """Of the rows of the right input."""
    resolved_join: tuple[OwnExpectation, ...] = ()
    """Of the result."""


class JoinSpec(PipelineSpec):
    """One join of two inputs, as its pipeline file describes it."""

    join: Literal["inner", "left", "outer"]
    """`left` keeps left rows without a match, with nulls on the right; `outer` also right ones."""
    left: SideSpec
    """The left input."""
    right: SideSpec
    """The right input."""
    select: tuple[str, ...] | None = Field(default=None, min_length=1)
    """SQL: the columns of the result; default: all of both sides."""
    expectations: JoinSuites = Field(default_factory=JoinSuites)
    """Expectations of your own, per input and of the result."""

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

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result, in their order."""
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
        reads = {output.name: self.reads(output) for output in self.outputs}
        return frozenset(name for name, columns in reads.items() if any(side == Side.RIGHT for side, _ in columns))

    def reads(self, output: Output) -> tuple[tuple[Side, Column], ...]:
        """Returns the columns of both sides that a column of the result is made of."""
        return tuple(map(self.resolve, parse_expression(output.sql).reads))

    def plain_outputs(self, side: Side, nullable: bool) -> list[tuple[str, str | None, bool]]:
        """Returns the key columns of a side as `result_key_outputs` does.

        Of `result_key` these are the columns that it is made of, if it is not selected itself.
        """
        plain = {self.resolve(parse_expression(o.sql).reads[0]): o.name for o in self.outputs if o.plain}
        of_side = self.side(side)
        outputs = [(f"{side}.{c.name}", plain.get((side, c)), nullable) for c in of_side.key_columns]
        if of_side.key_of_result and outputs[0][1] is None:
            outputs = [(f"{side}.{c.name}", plain.get((side, c)), True) for c in of_side.key_parts]
        return outputs

    def chosen(self, side: Side) -> tuple[Column, ...]:
        """Returns the columns of a side that `select` names; none without one."""
        return () if self.select is None else self.selected[side]

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
        return {side: tuple(c for c in self.side(side).columns if c.name in names[side]) for side in SIDES}

    def resolve(self, read: tuple[str, ...]) -> tuple[Side, Column]:
        """Returns the side and column that a path in `select` refers to."""
        if read[0].lower() in ("left", "right"):
            side = Side(read[0].lower())
            column = self._column(side, read[1]) if len(read) > 1 else None
            if column is None:
                names = [c.name for c in self.columns_of(side)]
                have = f"it has {listed_for(read[-1], names)}"
                raise SqlTextError(f"{'.'.join(read)!r} is not a column of the {side} schema; {have}")
            return side, column
        matches = [(side, c) for side in SIDES if (c := self._column(side, read[0])) is not None]
        if not matches:
            of_sides = {side: [c.name for c in self.columns_of(side)] for side in SIDES}
            have = "; ".join(f"{side} has {', '.join(of_side)}" for side, of_side in of_sides.items())
            of_both = [name for of_side in of_sides.values() for name in of_side]
            alike = did_you_mean(read[0], of_both if len(read) == 1 else [*map(str, SIDES), *of_both])
            raise SqlTextError(f"column {read[0]!r} is in neither schema; {have}{alike}")
        if len(matches) > 1:
            raise SqlTextError(f"column {read[0]!r} is on both sides; write left.{read[0]} or right.{read[0]}")
        return matches[0]

    def type_of(self, read: tuple[str, ...]) -> str | None:
        """Returns the declared type of the column that a path in `select` names; None for a part of a column."""
        _, column = self.resolve(read)
        whole = 2 if read[0].lower() in ("left", "right") else 1
        return column.type if len(read) == whole else None

    def check_outputs(self) -> None:
        """Refuses a `select` that does not fit the sides."""
        self.check_named("select", self.select or ())
        if self.select is None:
            clash = [o.name for o in self.outputs]
            if len({n.lower() for n in clash}) < len(clash):
                raise problem("the default select would name two columns alike; write a select", "right", "schema")

    def check_named(self, place: str, texts: Sequence[str]) -> None:
        """Refuses expressions that cannot be columns of the result; `place` is their key in the pipeline file."""
        names: set[str] = set()
        for i, text in enumerate(texts):
            try:
                expression = parse_expression(text)
                for read in expression.reads:
                    self.resolve(read)
                refuse_moments(text, self.type_of)
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
        secret = {side: {*self.side(side).sensitive} for side in SIDES}
        pairs = []
        for texts in equal:
            reads = {}
            for side, text in zip(SIDES, texts, strict=True):
                columns = (self.side(side).column(path[0]) for path in parse_expression(text).reads)
                reads[side] = {column.name for column in columns if column is not None}
            pairs.append(reads)
        for _ in pairs:  # one pair may make another sensitive
            for reads in pairs:
                if any(reads[side] & secret[side] for side in SIDES):
                    secret = {side: secret[side] | reads[side] for side in SIDES}
        for side in SIDES:
            spec = self.side(side)
            ordered = tuple(column.name for column in spec.columns if column.name in secret[side])
            object.__setattr__(self, side, spec.model_copy(update={"sensitive": ordered}))
