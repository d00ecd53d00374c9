"""The inputs of a pipeline as cases give their rows: which columns, which key, and where the rows land."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, SideSpec, load_spec
from fk_pipeline.spec.formats import COMMITTED_AT
from fk_pipeline.spec.inputs import RESULT_KEY
from fk_pipeline.spec.paths import inline_reference


@dataclass(frozen=True)
class CaseInput:
    """An input whose rows a case gives.

    Attributes:
        side: its name.
        lands_as: the input in whose folder its rows land: another one, if both are the same stream.
        spec: the input in the pipeline file.
    """

    side: Side
    lands_as: Side
    spec: SideSpec

    @property
    def schema(self) -> str:
        """The columns of its rows as DDL; with `committed_at` if the format of the source would tell that time."""
        added = f", {COMMITTED_AT} TIMESTAMP" if self.spec.holds_since_commit else ""
        return f"{self.spec.schema_}{added}"

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns of its rows."""
        names = [column.name for column in self.spec.as_sent.columns]
        return [*names, COMMITTED_AT] if self.spec.holds_since_commit else names

    @property
    def key(self) -> Sequence[str]:
        """The columns whose values identify a row; none of events whose key is their place."""
        return () if self.spec.keyed_by_place else [column.name for column in self.spec.key_parts]

    @property
    def made_key(self) -> str:
        """The column that is the key of its rows and that no case writes; empty: there is none."""
        return RESULT_KEY if self.spec.key_of_result else ""

    @property
    def contents(self) -> str:
        """What a batch brings."""
        return self.spec.contents

    @property
    def may_delete(self) -> bool:
        """Whether a case may delete a row of it."""
        return self.spec.contents == "changes"


def inputs_of_cases(spec: PipelineSpec) -> list[CaseInput]:
    """Returns the inputs of a pipeline whose rows cases give: all but clocks."""
    inputs: list[CaseInput] = []
    for side in spec.sides:
        if side not in spec.clocks:
            given = _as_given(spec, side)
            same = next((other.side for other in inputs if other.spec.model_dump() == given.model_dump()), side)
            inputs.append(CaseInput(side, same, given))
    return inputs


def _as_given(spec: PipelineSpec, side: Side) -> SideSpec:
    """Returns an input; an inline one as the file gives it, not as the result that a query reads of it."""
    given, inline = spec.side(side), inline_reference(spec.file, side)
    return load_spec(inline).side(Side.INPUT) if given.pipeline == inline.name else given
