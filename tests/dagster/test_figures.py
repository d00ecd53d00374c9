"""A stage of any kind shows one headline number per batch, and all else in a table: Dagster plots every number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dagster import AssetMaterialization

from fk_pipeline.assets.shown import FIGURES, of_state
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.registry import KINDS
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.store.ledger.runs import StageState, Success
from tests.any_order.subjects import SUBJECTS, registered
from tests.dagster.ticks import figures, plotted

ROWS = "dagster/partition_row_count"
VERSIONS = {"read": 3, "TABLE written": 4}


@pytest.fixture(params=SUBJECTS)
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PipelineSpec]:
    """Yields a pipeline of each kind."""
    subject = SUBJECTS[request.param]
    *_, file = subject.write(tmp_path, subject.joins[0])
    with registered():
        yield load_spec(file)


def made(spec: PipelineSpec, stage: str, counts: dict[str, int]) -> AssetMaterialization:
    """A materialisation of a batch with some counts, whose work was done twice."""
    first, again = (
        Success(entry, f"r{entry}", BatchRange(4, 6), counts, VERSIONS, 1.23456, "full", "new", ("", {}))
        for entry in (1, 2)
    )
    files = None if spec.definition.side_of(stage) is None else 2
    shown = of_state(spec, stage, StageState(last=again, figures=first), files)
    return AssetMaterialization(stage, metadata=shown)


def test_a_stage_of_any_kind_has_one_headline(spec: PipelineSpec) -> None:
    for stage in spec.definition.stages:
        parts = [*dict.fromkeys(part for sum_of in stage.counts.values() for part in sum_of)]
        counts = {name: 10**place for place, name in enumerate(dict.fromkeys(["superseded", "rows", *parts]))}
        one = made(spec, stage.name, counts)
        numbers = {name: sum(counts[part] for part in sum_of) for name, sum_of in stage.counts.items()}
        shown = counts | numbers
        headline = next(iter(numbers or counts))
        reads = spec.definition.side_of(stage.name) is not None
        assert plotted(one) == {headline: shown[headline]} | ({ROWS: counts["rows"]} if reads else {})
        assert next(iter(one.metadata)) == headline
        rows = {row.data["figure"]: row.data["value"] for row in one.metadata[FIGURES].value.records}
        assert headline not in rows
        told = {"seconds": 1.235, "batches of the run": "4..6", "run id": "r1", "Delta version of TABLE": 4}
        told |= {"strategy": "full: new"} | ({"files": 2} if reads else {})
        assert {headline: shown[headline], **rows} == shown | told
        assert figures(one)["note"] == "run r2 did the same work again"
        assert set(one.metadata) - {headline, ROWS, FIGURES} <= {"path", "report", "note", "dagster/column_lineage"}


def test_every_kind_is_among_them() -> None:
    assert {*KINDS} <= {subject.kind.name for subject in SUBJECTS.values()}


@pytest.mark.parametrize("spec", ["table"], indirect=True)
def test_a_stage_without_numbers_has_its_first_count(spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = spec.definition
    silent = replace(kind, stages=tuple(replace(stage, counts={}) for stage in kind.stages))
    monkeypatch.setattr(PipelineSpec, "definition", silent)
    stage = kind.stages[-1].name
    assert plotted(made(spec, stage, {"applied": 3, "late": 1})).keys() == {"applied"}
    assert plotted(made(spec, stage, {})) == {}
