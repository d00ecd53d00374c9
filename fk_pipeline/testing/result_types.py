"""The types of inputs that are results of pipelines which have not run: Spark tells those of expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fk_pipeline.contract import loaded
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.testing.copies import copied
from fk_pipeline.testing.inputs import CaseInput, inputs_of_cases


def with_types(inputs: Sequence[CaseInput], folder: Path, opened: Callable[[PipelineSpec], Any]) -> list[CaseInput]:
    """Returns inputs whose columns have the types of the results that they are. Nothing runs.

    Args:
        inputs: the inputs.
        folder: a folder for copies of the pipelines that make these results.
        opened: makes the pipeline of a copy.
    """
    return [_typed(source, folder / str(source.side), opened) if source.spec.not_run else source for source in inputs]


def _typed(source: CaseInput, folder: Path, opened: Callable[[PipelineSpec], Any]) -> CaseInput:
    folder.mkdir(parents=True)
    feeding = load_spec(source.spec.not_run)
    copy = copied(feeding, with_types(inputs_of_cases(feeding), folder, opened), folder)
    layout = loaded(copy.definition.layout)(opened(copy).session, copy)
    types = dict(layout[copy.definition.result.name].columns)
    schema = ", ".join(f"{column.quoted} {types.get(column.name, column.type)}" for column in source.spec.columns)
    return replace(source, spec=source.spec.model_copy(update={"schema_": schema}))
