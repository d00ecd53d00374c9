"""Several pipelines as one project: which files they are, their order, and that each has a name of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fk_pipeline.definitions import definitions
from fk_pipeline.engine.damage import damage_error, damages
from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.project import pipeline_files, project_of, refuse_same_tables
from tests.damage import KINDS
from tests.upgrades import upgrade

FIRST = (
    "name: {}\nkind: aggregate\ninput: {{path: x, format: rows, schema: 'id BIGINT, m BIGINT', key: id}}\n"
    "group_by: [m]\naggregates: [count(*) AS k]\n"
)
READER = "name: {}\nkind: aggregate\ninput: {{pipeline: {}}}\ngroup_by: [{}]\naggregates: [count(*) AS {}]\n"


def written(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return [folder / f"{name}.yaml" for name in texts]


def test_a_wrong_file_has_its_error_and_only_what_reads_it_waits_for_it(tmp_path: Path) -> None:
    after, reader, wrong, other, one, two = written(
        tmp_path,
        after=READER.format("after", "reader.yaml", "n", "l"),
        reader=READER.format("reader", "wrong.yaml", "m", "n"),
        wrong=FIRST.format("wrong").replace("kind: aggregate", "kind: none"),
        other=FIRST.format("other"),
        one=READER.format("one", "two.yaml", "m", "n"),
        two=READER.format("two", "one.yaml", "m", "n"),
    )
    project = project_of([after, reader, wrong, other, one, two, other, tmp_path / "." / "other.yaml"])
    assert len(project.files) == 6
    assert project.wrong.keys() == {wrong, reader, after, one, two}
    assert project.reads == {wrong: (), other: (), reader: (wrong,), after: (reader,), one: (), two: ()}
    order = [project.files.index(file) for file in (wrong, reader, after)]
    assert order == sorted(order)
    assert "wrong.yaml:2: kind: 'none' is not possible" in str(project.wrong[wrong])
    assert "circle" not in str(project.wrong[wrong])
    assert "read each other's results" in str(project.wrong[one])
    assert project.names[wrong] == "wrong"


@pytest.mark.parametrize("what", ["garbled commit", "missing commit", "ofTomorrow"])
def test_a_result_that_cannot_be_opened_stops_only_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    after, reader, first, other = written(
        tmp_path,
        after=READER.format("after", "reader.yaml", "n", "l"),
        reader=READER.format("reader", "first.yaml", "m", "n"),
        first=FIRST.format("first"),
        other=FIRST.format("other"),
    )
    result = tmp_path / "warehouse/first/aggregated"
    for number in range(3):
        write_deltalake(result, pa.table({"m": [number]}), mode="append")
    if what in KINDS:
        KINDS[what](result)
        spec = load_spec(first)
        cure = damage_error(damages(spec), spec).fix
        assert cure.startswith("fk-pipeline rebuild ")
    else:
        monkeypatch.setattr("tests.upgrades.OF_READERS", [what])
        upgrade(result, what)
        cure = "in Spark: ALTER TABLE"
    project = project_of([after, reader, first, other])
    assert project.wrong.keys() == {after, reader}
    assert project.reads == {after: (reader,), reader: (first,), first: (), other: ()}
    with pytest.raises(StateError) as refused:
        definitions([other, reader])
    for error in (project.wrong[after], project.wrong[reader], refused.value):
        assert error.fix.startswith(cure)
        assert error.where.startswith(str(result))
        assert "table aggregated" in error.what


def test_files_that_are_no_pipelines_are_left_out_of_a_folder(tmp_path: Path) -> None:
    good, broken, empty = written(tmp_path, good=FIRST.format("good"), broken="a: [", no_inputs="name: x\njoin: left\n")
    written(tmp_path, dagster="run_launcher: {module: m}\n", suite="- {type: expect_x, kwargs: {}}\n", nothing="")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "second.yml").write_text(FIRST.format("second"))
    assert pipeline_files([tmp_path]) == [broken, good, empty, tmp_path / "second.yml"]
    assert pipeline_files([tmp_path / "suite.yaml"]) == [tmp_path / "suite.yaml"], "what is named is meant"


QUERY = "name: {}\nkind: query\ninputs: {{t: {{pipeline: {}}}}}\nquery: {}\n"


def test_a_query_in_a_folder_runs_after_the_pipelines_that_it_reads(tmp_path: Path) -> None:
    query, totals = written(
        tmp_path, asks=QUERY.format("asks", "totals.yaml", "SELECT m, k FROM t"), totals=FIRST.format("totals")
    )
    assert pipeline_files([tmp_path]) == [query, totals]
    assert project_of([query, totals]).files == (totals, query)


def test_a_query_waits_for_a_wrong_pipeline_that_it_reads(tmp_path: Path) -> None:
    query, totals = written(
        tmp_path, asks=QUERY.format("asks", "totals.yaml", "SELECT m, k FROM t"), totals="input: x\n"
    )
    project = project_of([query, totals])
    assert project.reads[query] == (totals,)
    assert str(project.wrong[query]) == str(project.wrong[totals])


def test_two_files_of_one_name_are_refused_with_both_paths(tmp_path: Path) -> None:
    one, two, third = written(tmp_path, one=FIRST.format("same"), two=FIRST.format("same"), third=FIRST.format("third"))
    said = f"two pipelines are called 'same': {one} and {two}"
    for call in (
        lambda: project_of([two, third, one]),
        lambda: project_of([third, one]),  # the other is not named, and has the same tables
        lambda: refuse_same_tables([two]),
        lambda: definitions([two, one]),
    ):
        with pytest.raises(PipelineFileError) as refused:
            call()
        assert refused.value.what == said
    refuse_same_tables([third])
    elsewhere = f"{FIRST.format('same')}warehouse: {tmp_path}/other\n"
    written(tmp_path, two=elsewhere)
    refuse_same_tables([one, two])
    with pytest.raises(PipelineFileError):
        project_of([one, two])


@pytest.mark.parametrize(
    ("beside", "same"),
    [
        ("warehouse: ./warehouse/", True),
        ("warehouse: link", True),
        ("warehouse: s3a://b/w", False),
        ("warehouse: other", False),
        ("kind: [", False),
        ("since: 2024-02-30", False),
    ],
)
def test_the_same_tables_may_be_written_in_other_words(beside: str, same: bool, tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "link").symlink_to("warehouse")
    [file, _] = written(tmp_path, file=FIRST.format("same"), beside=f"{FIRST.format('same')}{beside}\n")
    (tmp_path / "again.yaml").symlink_to("file.yaml")  # is the same file
    if not same:
        refuse_same_tables([file])
        return
    with pytest.raises(PipelineFileError, match=r"two pipelines are called 'same': .*beside"):
        refuse_same_tables([file])


def test_a_file_of_another_tool_with_the_name_is_no_second_pipeline(tmp_path: Path) -> None:
    [file] = written(tmp_path, orders=FIRST.format("orders"))
    [other] = written(tmp_path, environment="name: orders\ndependencies: [python]\n")
    refuse_same_tables([file])
    assert project_of([file, other]).wrong.keys() == {other}, "what is named is told what is wrong with it"
