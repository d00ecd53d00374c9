"""The parts of a pipeline file that only `kind: table` has: one input, whose columns are those of the result."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fk_pipeline.identity import Side
from fk_pipeline.spec.base import problem
from fk_pipeline.spec.inputs import SideSpec
from fk_pipeline.spec.model import Output, PipelineSpec
from fk_pipeline.spec.settings import OwnExpectation, OwnSuites
from fk_pipeline.spec.sql import Column


class TableSuites(OwnSuites):
    """The user's expectations of the rows that land and of the result."""

    input: tuple[OwnExpectation, ...] = ()
    """Of the rows of the input."""
    table: tuple[OwnExpectation, ...] = ()
    """Of the result."""


class TableSpec(PipelineSpec):
    """One table that is kept up to date from its changes, as its pipeline file describes it."""

    input: SideSpec
    """The input."""
    expectations: TableSuites = Field(default_factory=TableSuites)
    """Expectations of your own, of the input and of the result."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result: those of the input, in the order of its schema."""
        return tuple(Output(column.name, column.quoted, True) for column in self.input.columns)

    def reads(self, output: Output) -> tuple[tuple[Side, Column], ...]:
        """Returns the column of the input that a column of the result is."""
        return tuple((Side.INPUT, column) for column in self.input.columns if column.name == output.name)

    def result_key_outputs(self) -> Sequence[tuple[str, str | None, bool]]:
        """Returns the columns of the key, of which none is null."""
        return [(column.name, column.name, False) for column in self.input.key_columns]

    @property
    def selected(self) -> dict[Side, tuple[Column, ...]]:
        """Every column of the input."""
        return {Side.INPUT: self.input.columns}

    def check_outputs(self) -> None:
        """Refuses an input whose rows are versions."""
        if self.input.valid_from is not None:
            why = "valid_from is of the right side of a join, whose versions a left row sees"
            raise problem(why, "input", "valid_from")
