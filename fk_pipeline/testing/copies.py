"""A copy of a pipeline in a folder of its own, whose inputs are plain rows that a case lands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fk_pipeline.errors import StateError
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.load import document_of
from fk_pipeline.spec.paths import place_of
from fk_pipeline.spec.project import NAMED_INPUTS, with_inline
from fk_pipeline.testing.cases import GivenBatch, line_of_row
from fk_pipeline.testing.inputs import CaseInput

OPERATION = "_operation"
"""The field of a landed line that says whether it writes or deletes."""

_OF_SOURCE = (
    *("path", "pipeline", "table", "format", "schema", "key", "csv", "logical_types", "batch_by", "op_column"),
    *("sensitive", "descriptions"),
)
"""The keys of an input that tell how its source writes rows, or what people may see."""

_LEFT_OUT = ("warehouse", "register", "expectations", "description", "descriptions", "owners", "tags", "group", "meta")
"""The keys of a pipeline file that a copy does without: where its tables are, what checks and what describes them."""


def copied(spec: PipelineSpec, inputs: list[CaseInput], folder: Path) -> PipelineSpec:
    """Writes a copy of a pipeline, with empty landing folders, into a folder; returns it.

    Raises:
        StateError: the copy would read or write elsewhere.
    """
    document = {key: value for key, value in document_of(spec.file).items() if key not in _LEFT_OUT}
    given = document[NAMED_INPUTS] if spec.definition.named_inputs else document
    rows = {source.side: _source(given[source.side], source) for source in inputs}
    sources = {str(side): rows.get(side, given[side]) for side in spec.sides}  # but clocks: they stay
    document |= {NAMED_INPUTS: sources} if spec.definition.named_inputs else sources
    query = spec.model_dump(include={"query"})  # its text, where the file names one that has it
    file = folder / f"{spec.name}.yaml"
    for source in inputs:
        _landing(folder, source).mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**document, **query}, ensure_ascii=False, indent=1, default=str) + "\n", "utf-8")
    copy = load_spec(file)
    _refuse_elsewhere(copy, folder)
    return copy


def land(inputs: list[CaseInput], folder: Path, number: int, batch: GivenBatch) -> None:
    """Writes the landing files of a batch of a case. Every line has all columns: one that is not given is null."""
    for source in inputs:
        if source.side not in batch:
            continue
        lines = []
        for row in batch[source.side]:
            values: dict[str, Any] = {name: row.values.get(name) for name in source.columns}
            if source.made_key and values[source.made_key] is None:
                values[source.made_key] = line_of_row({name: values[name] for name in source.key})
            if source.may_delete:
                values[OPERATION] = "d" if row.deletes else "u"
            lines.append(f"{line_of_row(values)}\n")
        (_landing(folder, source) / f"{number:08d}.jsonl").write_text("".join(lines), encoding="utf-8")


def _refuse_elsewhere(copy: PipelineSpec, folder: Path) -> None:
    """Refuses a copy that has something outside of its folder: keys that are left out are not all that may come.

    Raises:
        StateError: it names what that is.
    """
    top = place_of(folder)
    for spec in with_inline([copy]):
        inputs = (spec.location(spec.side(side).path) for side in spec.sides if side not in spec.clocks)
        outside = [path for path in (spec.home, *inputs) if not Path(path).is_relative_to(top)]
        if spec.register_ is not None:
            outside.append(spec.register_)
        if outside:
            raise StateError(
                f"a case would use {', '.join(outside)}",
                where=str(spec.file),
                why="it has a folder of its own, so that no data of yours is touched; nothing ran",
                fix="please report this: the copy of the pipeline file should not name it",
            )


def _landing(folder: Path, source: CaseInput) -> Path:
    return folder / "landing" / str(source.lands_as)


def _source(given: Mapping[str, Any], source: CaseInput) -> dict[str, Any]:
    """Returns an input of the pipeline file, as given there, as one of plain rows."""
    spec = source.spec
    return {
        **{key: value for key, value in given.items() if key not in _OF_SOURCE},
        "path": f"landing/{source.lands_as}",
        "format": "rows",
        "schema": source.schema,
        **({} if spec.keyed_by_place else {"key": list(spec.key)}),
        **({"op_column": OPERATION} if source.may_delete else {}),
    }
