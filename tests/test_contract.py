"""The data of every kind of join fit together, and the derived ones say what they ought to."""

from __future__ import annotations

import pytest

from fk_pipeline.contract import Kind, Role, Source, loaded
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from fk_pipeline.kinds.foreign_key.layout import declared_layout
from fk_pipeline.kinds.registry import KINDS, kind_named, kinds
from fk_pipeline.spec.model import PipelineSpec

every_kind = pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.name)


def test_kinds_are_registered_under_their_names() -> None:
    assert PipelineSpec.model_fields["kind"].default in KINDS
    assert {name: kind_named(name).name for name in KINDS} == dict(zip(KINDS, KINDS, strict=True))


@every_kind
def test_names_that_are_used_are_names_that_are_there(kind: Kind) -> None:
    stages, tables = {*kind.stage_names}, {table.name for table in kind.tables}
    assert len(stages) == len(kind.stages)
    assert len(tables) == len(kind.tables)
    assert stages <= tables, "a stage is called like its main table"
    for stage in kind.stages:
        assert {*stage.reads} | ({stage.looks_up_in, stage.index} - {""}) <= tables
        assert kind.table(stage.name).stage == stage.name
        assert kind.in_order(stage.upstream) == kind.in_order({*stage.upstream} & stages)
    assert {table.stage for table in kind.tables} <= stages | {None}
    assert {stage for found in kind.rebuilt_by.values() for stage in found} <= stages
    for one in kind.inputs:
        assert (kind.table(one.log).role, kind.table(one.log).stage, kind.table(one.log).of) == (
            Role.LOG, one.stage, one.name,
        )  # fmt: skip
    with pytest.raises(KeyError):
        kind.stage("nothing")
    with pytest.raises(KeyError):
        kind.table("nothing")


@every_kind
def test_stages_stand_in_running_order_and_tables_in_the_order_of_reading(kind: Kind) -> None:
    seen: set[str] = set()
    for stage in kind.stages:
        assert {*stage.upstream} <= seen
        seen.add(stage.name)
    written = [table.stage for table in kind.tables if table.stage is not None]
    assert written == sorted(written, key=kind.stage_names.index)
    for table in kind.tables:
        if table.role is Role.INDEX:
            states = [t for t in kind.tables if t.stage == table.stage and t.role is Role.STATE]
            assert all(kind.tables.index(state) < kind.tables.index(table) for state in states), "read after the state"
            assert kind.written_by(str(table.stage)).index(table.name) == 0, "written before the state"


def test_what_follows_for_the_foreign_key_join() -> None:
    kind = FOREIGN_KEY
    assert kind.downstream(["right_table"]) == ("right_table", "responses", "resolved_join")
    assert kind.written_by("subscription_store") == ("subscribers", "subscription_store")
    assert kind.written_by("right_table") == ("right_changelog", "right_table")
    assert kind.rebuilds(Source.CHANGELOG) == ("right_table", "subscription_store", "responses", "resolved_join")
    assert kind.rebuilds(Source.LANDING) == kind.stage_names
    assert (kind.side_of("right_table"), kind.side_of("responses")) == (Side.RIGHT, None)
    assert (kind.result.name, kind.result_stage) == ("resolved_join", "resolved_join")
    assert kind.proved == (
        "left_changelog", "right_changelog", "right_table", "subscription_store", "responses", "resolved_join",
    )  # fmt: skip
    rejecting = {"left": "left_changelog", "right": "right_table", "join": "resolved_join"}
    assert kind.rejecting == rejecting


def test_the_layout_has_the_tables_of_the_kind() -> None:
    side = {"path": "x", "schema": "k STRING, v STRING", "key": "k"}
    spec = PipelineSpec.model_validate(
        {"name": "p", "join": "left", "left": {**side, "foreign_key": "v"}, "right": side, "select": ["left.v"]}
    )
    layout = declared_layout(spec)
    assert {table.name for table in layout.tables} == {table.name for table in spec.definition.tables}
    for name in spec.definition.with_role(Role.STATE, Role.RESULT):
        [table] = layout.of(name)
        keys = loaded(spec.definition.keys)(spec, name).columns
        assert table.keys == tuple(column for column, _ in keys) != ()
