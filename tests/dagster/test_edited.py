"""A pipeline file that is edited while Dagster runs: the tick uses it as it is now, or says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions

from fk_pipeline.definitions import definitions
from fk_pipeline.errors import EnvironmentNotFit, StateError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.resources import FkSparkResource
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.edited import edited_files, text_of, with_known_types
from fk_pipeline.spec.load import with_settings
from tests.dagster.world import ZONE, FakeZoneResource, World

pytestmark = pytest.mark.usefixtures("empty_zone")

TAG = "fk_pipeline/file"


@pytest.fixture
def world(tmp_path: Path, instance: DagsterInstance) -> World:
    made = World(tmp_path, instance, "{}")
    for batch in range(3):
        ZONE.put("left", batch)
    return made


def edit(world: World, old: str, new: str) -> Path:
    file = world.pipeline.spec.file
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def test_an_edit_of_what_no_definition_is_made_from_counts_at_once(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    assert world.tick() == ("0..2", [])
    assert world.request is not None
    before = world.request.tags[TAG]
    assert "edited" not in capfd.readouterr().err
    file = edit(world, "settings: {}", "settings: {max_batches_per_run: 2}\ndescription: what it is\n# a comment")
    assert world.tick() == ("0..1", [])
    assert world.request is not None
    assert before != world.request.tags[TAG] == text_of(load_spec(file))
    assert f"{file}, edited after Dagster had loaded it, is used as it is now: text {world.request.tags[TAG]}" in (
        capfd.readouterr().err
    )
    edit(world, "settings: {max_batches_per_run: 2}\ndescription: what it is\n# a comment", "settings: {}")
    assert world.tick() == ("0..2", []), "the edit was undone"
    assert world.request is not None
    assert world.request.tags[TAG] == before


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("k STRING, name STRING", "k STRING, name STRING, city STRING", "right.schema"),
        ("join: left", "join: inner", "join"),
        ("in/left", "elsewhere/left", "left.path"),
        ("name: tested", "name: another", "name"),
        (
            "join: left",
            "expectations: {left: [{type: expect_table_row_count_to_be_between}]}\njoin: left",
            "expectations",
        ),
    ],
)
def test_an_edit_of_what_definitions_are_made_from_waits_for_a_reload(
    world: World, old: str, new: str, changed: str
) -> None:
    file = edit(world, old, new)
    asked, reasons = world.tick()
    assert asked is None
    told = "; ".join(reasons)
    assert world.partitions() == [], "nothing is recorded under one text of what is computed under another"
    assert f"{file}: edited after Dagster had loaded it: {changed}" in told
    assert "Fix: reload the code location (in the pages: Deployment, Reload), or undo the edit" in told
    if changed != "name":
        world.defs = definitions([file])
        assert world.tick()[1] == []


def test_a_file_that_cannot_be_read_is_named_with_the_line_until_it_is_mended(world: World) -> None:
    file = edit(world, "settings: {}", "settings: {max_batchs_per_run: 2}")
    asked, reasons = world.tick()
    assert asked is None
    told = "; ".join(reasons)
    assert f"{file}:5: unknown key 'settings.max_batchs_per_run'" in told
    assert "Fix: mend it; the next tick reads it again" in told
    found = world.failed(Stage.RESOLVED_JOIN)
    assert not found.passed
    assert str(found.description).startswith(f"nothing runs: {file}:5: unknown key 'settings.max_batchs_per_run'")
    file.write_text(file.read_text() + "[")
    assert f"{file}:6" in "; ".join(world.tick()[1])
    text = file.read_text()
    file.unlink()
    assert "there is no such pipeline file" in world.tick()[1][0]
    file.write_text(text.replace("max_batchs_per_run: 2}\n[", "max_batches_per_run: 2}"))
    assert world.tick() == ("0..1", [])
    assert world.failed(Stage.RESOLVED_JOIN).passed


def test_settings_of_the_project_stay_when_the_file_is_read_again(world: World) -> None:
    spec = with_settings(load_spec(world.pipeline.spec.file), max_batches_per_run=1)
    world.defs = definitions([spec])
    edit(world, "settings: {}", "settings: {max_batches_per_run: 2}")
    assert world.tick() == ("0..0", [])


def test_the_files_that_a_pipeline_file_names_are_part_of_its_text(world: World, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text('[{"type": "expect_table_row_count_to_be_between"}]')
    made = "select: [left.id AS id, left.fk AS fk, UPPER(left.fk) AS shout]"  # only Spark knows the type of the last
    edit(world, "settings: {}", f"settings: {{}}\nexpectations: {{left: suite.json}}\n{made}")
    other = tmp_path / "reading.yaml"
    other.write_text(
        "name: reading\njoin: left\nleft: {pipeline: tested.yaml, foreign_key: fk}\n"
        "right: {path: in/right, format: rows, schema: 'k STRING, city STRING', key: k}\n"
    )
    spec = load_spec(other)
    assert [file.name for file, _ in spec.texts] == ["reading.yaml", "tested.yaml", "suite.json"]
    assert edited_files(spec) == []
    suite.write_text('[{"type": "expect_table_row_count_to_be_between", "severity": "warning"}]')
    assert edited_files(spec) == [suite]
    assert text_of(load_spec(other)) != text_of(spec)
    with pytest.raises(StateError, match="the pipeline file was edited after this run had read it"):
        with_known_types(spec)  # the types of a result that was never made are read at each stage of a run


class NoSpark(FkSparkResource):
    """Ends a run where it would start Spark."""

    @property
    def spark_session(self) -> Any:
        raise EnvironmentNotFit("no Spark here")


def test_a_run_says_that_it_uses_another_text_than_the_sensor_saw(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    assert world.tick() == ("0..2", [])
    assert world.request is not None
    tags = dict(world.request.tags)
    told = []
    for text in ("settings: {}", "settings: {retry_seconds: 5}"):
        file = world.pipeline.spec.file
        file.write_text(file.read_text().replace("settings: {}", text))
        made = definitions([file])  # as the process of a run does
        resources = {"spark": NoSpark(), "landing_zone": FakeZoneResource()}
        job = Definitions(made.assets, jobs=made.jobs, resources=resources).resolve_job_def("tested_all_stages")
        capfd.readouterr()
        assert not job.execute_in_process(instance=world.instance, tags=tags, raise_on_error=False).success
        told.append(capfd.readouterr().err)
    requested = f"the sensor requested this run with text {tags[TAG]}, and the pipeline file was edited since"
    assert "no Spark here" in told[0]
    assert requested not in told[0]
    assert f"{requested}: the run uses text {text_of(load_spec(file))}, as it was when the run began" in told[1]
