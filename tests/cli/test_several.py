"""A folder of pipelines is a project: one that fails stops those that read its result, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fk_pipeline.cli import main
from fk_pipeline.errors import PipelineFileError

COMMANDS = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
NO_PIPELINE = {"init", "trace", "demo", "down", "recover", "spark", "dagster"}
MORE = {
    "export": ["--to", "x.csv"], "show": ["verdicts"], "explain": ["--key", "1"], "impact": ["--right-key", "a"],
    "remove-batch": ["1"],
}  # fmt: skip
FIRST = (
    "name: {0}\nkind: aggregate\ninput: {{path: {0}, format: rows, schema: 'id INT, m INT', key: id}}\n"
    "group_by: [m]\naggregates: [count(*) AS k]\n"
)
READER = "name: {}\nkind: aggregate\ninput: {{pipeline: {}.yaml}}\ngroup_by: [{}]\naggregates: [count(*) AS {}]\n"


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(main.app, [str(a) for a in args])


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[Any, str, str]:
    """Calls the command as a shell does, in this process."""
    monkeypatch.setattr("sys.argv", ["fk-pipeline", *map(str, args)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main.app_main()
    return ended.value.code or 0, *capsys.readouterr()


def first(folder: Path, name: str, *lines: str) -> Path:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "1.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return written(folder, name, FIRST.format(name))


def written(folder: Path, name: str, text: str) -> Path:
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


@pytest.mark.parametrize("name", sorted({*COMMANDS, "spark start", "dagster sync"} - NO_PIPELINE))
def test_two_files_of_one_name_are_refused_by_every_command(name: str, file: Path) -> None:
    copy = file.with_name("copy.yaml")
    copy.write_text(file.read_text())
    for given in (file, copy):
        refused = invoke(*name.split(), given, *MORE.get(name, []))
        assert isinstance(refused.exception, PipelineFileError), refused.output
        assert refused.exception.what == f"two pipelines are called 'p': {copy} and {file}"
    *_, last = COMMANDS[name.split(maxsplit=1)[0]].params[: len(name.split())]
    if "..." in str(last.metavar):
        refused = invoke(*name.split(), file.parent)
        assert isinstance(refused.exception, PipelineFileError), refused.output
        assert refused.exception.what == f"two pipelines are called 'p': {copy} and {file}"


def test_what_needs_no_run_is_told_of_every_pipeline_that_can_tell_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first(tmp_path, "a", '{"id": 1, "m": 2}')
    written(tmp_path, "b", FIRST.format("b").replace("group_by: [m]", "group_by: [n]"))
    written(tmp_path, "c", READER.format("c", "b", "m", "l"))
    first(tmp_path, "d", '{"id": 1, "m": 2}')
    written(tmp_path, "no_folder", FIRST.format("no_folder"))
    written(tmp_path, "dagster", "telemetry: {enabled: false}\n")
    for name in ("plan", "status"):
        status, out, err = called(monkeypatch, capsys, name, tmp_path)
        assert status == 2
        assert err.count("b.yaml:4: group_by") == 1
        assert "c waits for b\n" in err
        assert "dagster" not in err + out
        assert out.count("1 new landing file" if name == "plan" else "new files: 1") == 2
    _, out, _ = called(monkeypatch, capsys, "plan", tmp_path, "--format", "json")
    found = {one["pipeline"]: one for one in json.loads(out)}
    assert found.keys() == {"a", "b", "c", "d", "no_folder"}
    assert [found[name]["due"] for name in "ad"] == [3, 3]
    assert "there is no file or folder" in found["no_folder"]["error"]
    assert found["no_folder"]["status"] == 2
    assert found["c"] == {"pipeline": "c", "waits_for": ["b"]}


def test_a_damaged_result_is_told_and_the_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = first(tmp_path, "damaged", '{"id": 1, "m": 2}')
    reader = written(tmp_path, "b", READER.format("b", "damaged", "m", "l"))
    first(tmp_path, "z", '{"id": 1, "m": 2}')
    log = tmp_path / "warehouse/damaged/aggregated/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("garbled")
    cure = f"fk-pipeline rebuild {damaged} --from changelog --stages aggregated"
    for name in ("plan", "status"):
        status, out, err = called(monkeypatch, capsys, name, tmp_path)
        assert (status, cure in err, "nobody foresaw" in err) == (1, True, False), err
        assert ("Pipeline z\n" if name == "plan" else "z: no result yet") in out
    status, _, err = called(monkeypatch, capsys, "status", reader)
    assert (status, f"Fix: {cure}\n" in err) == (1, True), "of a single pipeline, too"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_one_that_needs_a_rebuild_stops_what_reads_it_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = first(tmp_path, "edited", '{"id": 1, "m": 2}', "bad", '{"id": 3')
    status, out, err = called(monkeypatch, capsys, "run", edited)
    assert status == 0
    lines_end = f"2 records went to the quarantine: 'fk-pipeline quarantine {edited}' shows them, and why\n"
    assert out == lines_end, "of a single pipeline, too"
    edited.write_text(edited.read_text().replace("key: id", "key: m"))
    written(tmp_path, "reader", READER.format("reader", "edited", "m", "l"))
    written(tmp_path, "after", READER.format("after", "reader", "l", "j"))
    other = first(tmp_path, "other", '{"id": 1, "m": 2}', "bad")
    written(tmp_path, "wrong", FIRST.format("wrong").replace("group_by: [m]", "group_by: [n]"))
    status, out, _ = called(monkeypatch, capsys, "plan", tmp_path)
    assert status == 2
    assert out.count("A run leaves it out: it waits for ") == out.count("it waits for edited.\nPipeline") * 2 == 2
    status, out, err = called(monkeypatch, capsys, "run", tmp_path)
    assert status == 2, "the worst of 1 and 2"
    summary = out[out.index("5 pipelines: 1 ran, 2 failed, 2 waiting\n") :]
    table = {line.split("|")[0].strip(): line.split("|")[1:] for line in summary.splitlines() if "|" in line}
    assert {name: [one.strip() for one in cells] for name, cells in table.items()} == {
        "pipeline": ["outcome", "passes", "to quarantine"],
        "edited": ["failed", "0", "0"],
        "reader": ["waits for edited", "0", "0"],
        "after": ["waits for reader", "0", "0"],
        "other": ["ran", "3", "1"],
        "wrong": ["failed", "0", "0"],
    }
    assert f"\n1 record of other went to the quarantine: 'fk-pipeline quarantine {other}' shows them" in summary
    assert f"fk-pipeline rebuild {edited}" in summary, "the fix"
    assert "StateError: " in err
    assert "reader waits for edited\n" in err
    status, out, err = called(monkeypatch, capsys, "run", tmp_path, "--format", "json")
    assert status == 2
    found = {one["pipeline"]: one for one in json.loads(out)}
    assert {name: (one["outcome"], one["status"]) for name, one in found.items()} == {
        "edited": ("failed", 1), "reader": ("waits", 0), "after": ("waits", 0), "other": ("ran", 0),
        "wrong": ("failed", 2),
    }  # fmt: skip
    assert found["after"]["waits_for"] == ["reader"]
    assert f"fk-pipeline rebuild {edited}" in found["edited"]["error"]
    assert found["other"]["runs"] == []
