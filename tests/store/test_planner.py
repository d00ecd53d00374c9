"""The choice between looking rows up and reading tables whole."""

from __future__ import annotations

import pytest

from fk_pipeline.contract import StageDef
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage
from fk_pipeline.spec.settings import Strategy
from fk_pipeline.store.planner import AUTO, FULL, INCREMENTAL, choose
from fk_pipeline.store.sizes import MEASURED

LARGE = 10_000_000
STAGES = {stage.name: stage for stage in FOREIGN_KEY.stages}
CHOOSING = [pytest.param(stage, id=stage.name) for stage in FOREIGN_KEY.stages if stage.full_share is not None]
RESPONSES = STAGES[Stage.RESPONSES]


def share_of(stage: StageDef) -> float:
    assert stage.full_share is not None
    return stage.full_share


def test_every_stage_but_one_that_keeps_a_log_only_has_a_choice() -> None:
    assert [stage.name for stage in FOREIGN_KEY.stages if stage.full_share is None] == ["left_changelog"]


@pytest.mark.parametrize("stage", CHOOSING)
def test_few_changes_are_looked_up_and_many_are_not(stage: StageDef) -> None:
    limit = int(LARGE * share_of(stage))
    assert choose(stage, AUTO, limit, LARGE).strategy == INCREMENTAL
    beyond = choose(stage, AUTO, limit + 1, LARGE)
    assert beyond.full
    assert f"{limit + 1:,} of 10,000,000 rows" in beyond.reason


@pytest.mark.parametrize("stage", [one for one in CHOOSING if one.id != Stage.RESPONSES])
def test_more_rows_are_put_in_place_where_a_commit_names_their_keys(stage: StageDef) -> None:
    limit = int(LARGE * MEASURED.named_share)
    assert not choose(stage, AUTO, limit, LARGE, nameable=limit).full
    assert choose(stage, AUTO, limit, LARGE, nameable=limit - 1).full
    assert choose(stage, AUTO, limit + 1, LARGE, nameable=LARGE).full


def test_answers_are_added_to_a_log_and_name_no_keys() -> None:
    limit = int(LARGE * share_of(RESPONSES))
    assert choose(RESPONSES, AUTO, limit + 1, LARGE, nameable=LARGE).full


@pytest.mark.parametrize("stage", CHOOSING)
def test_a_small_change_of_a_small_table_is_looked_up(stage: StageDef) -> None:
    assert choose(stage, AUTO, MEASURED.small_change, MEASURED.small_change).strategy == INCREMENTAL
    assert choose(stage, AUTO, MEASURED.small_change + 1, MEASURED.small_change).strategy == FULL


@pytest.mark.parametrize("stage", CHOOSING)
@pytest.mark.parametrize("wanted", [INCREMENTAL, FULL])
def test_the_pipeline_file_has_the_last_word_once_there_is_a_table(stage: StageDef, wanted: Strategy) -> None:
    assert choose(stage, wanted, 1, LARGE).strategy == wanted
    assert choose(stage, wanted, LARGE, LARGE).strategy == wanted
    assert choose(stage, wanted, 1, 0).full


def test_an_unknown_number_of_changes_is_merged() -> None:
    assert choose(STAGES[Stage.SUBSCRIPTION_STORE], AUTO, None, LARGE).strategy == INCREMENTAL


def test_answers_are_looked_up_with_an_index_only() -> None:
    assert choose(RESPONSES, INCREMENTAL, 1, LARGE, indexed=False).full
    assert choose(RESPONSES, AUTO, 1, LARGE, indexed=True).strategy == INCREMENTAL


def test_a_log_has_no_choice() -> None:
    assert choose(STAGES[Stage.LEFT_CHANGELOG], FULL, None, 0).strategy == INCREMENTAL
