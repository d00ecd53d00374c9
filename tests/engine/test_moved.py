"""A landing file is where it is: pipeline file, tables and landing folders move, and every known file stays known."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import HeldBackError, PipelineFileError, StateError, UsageError
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.pipeline import Pipeline, load
from fk_pipeline.spec.places import landing_base
from fk_pipeline.store.ledger import claimed_name
from fk_pipeline.store.ledger.entries import Entries

TEXT = """\
name: orders
join: left
left: {{path: "{left}", format: rows, schema: "id INT, fk STRING, v STRING", key: id, foreign_key: fk}}
right: {{path: "{right}", format: {form}, schema: "k STRING, name STRING", key: k}}
warehouse: {warehouse}
"""


def write(file: Path, start: str = "", **paths: str) -> Path:
    """A pipeline file whose paths begin with a text."""
    given = {"left": "landing/left", "right": "landing/right/*/*.jsonl", "warehouse": "warehouse"} | paths
    file.parent.mkdir(parents=True, exist_ok=True)
    form = "rows" if "*" in given["right"] else "delta"
    file.write_text(TEXT.format(form=form, **{name: f"{start}{path}" for name, path in given.items()}))
    return file


def land(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / "landing" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"id": 1, "fk": "a", "v": name, "k": "a", "name": name}) + "\n")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a pipeline file that has found its landing files, two of them of one batch."""
    folder = tmp_path / "home"
    land(folder, "left/1.jsonl", "left/more-1.jsonl", "left/2.jsonl", "right/x/1.jsonl", "right/y/2.jsonl")
    load(write(folder / "p.yaml")).discover()
    return folder


def adopted(file: Path) -> Path:
    """The pipeline file, once it is refused with a fix, and the fix is followed."""
    with pytest.raises(StateError, match="--adopt") as refused:
        load(file).discover()
    assert f"fk-pipeline run {file} --adopt, which takes each file there for the known one" in refused.value.fix
    pipeline = load(file)
    pipeline.adopt()
    pipeline.discover()  # in the same process, as the command does it
    return file


def moved_as_a_whole(home: Path) -> Path:
    return home.rename(home.parent / "a folder" / "deeper" / "home") / "p.yaml"


def linked(home: Path) -> Path:
    write(home / "conf" / "p.yaml", "../")
    (home.parent / "elsewhere").mkdir()
    (home.parent / "elsewhere" / "link").symlink_to(home / "conf")
    return home.parent / "elsewhere" / "link" / "p.yaml"  # `..` is above the target of the link


def landing_moved(home: Path) -> Path:
    (home / "landing").rename(home.parent / "mnt")
    landing = str(home.parent / "mnt")
    return adopted(write(home / "p.yaml", left=f"{landing}/left", right=f"{landing}/right/*/*.jsonl"))


def landing_linked(home: Path) -> Path:
    (home / "landing").rename(home.parent / "mnt")
    (home / "landing").symlink_to(home.parent / "mnt")
    return adopted(home / "p.yaml")


def landing_moved_into_itself(home: Path) -> Path:
    for side in ("left", "right"):
        (home / "landing" / side).rename(home / "aside")
        (home / "landing" / side).mkdir()
        (home / "aside").rename(home / "landing" / side / "in")
    return adopted(write(home / "p.yaml", left="landing/left/in", right="landing/right/in/*/*.jsonl"))


def landing_moved_out_of_itself(home: Path) -> Path:
    (home / "landing" / "left").rename(home / "aside")
    (home / "landing" / "right").rename(home / "right")
    (home / "landing").rmdir()
    (home / "aside").rename(home / "landing")
    return adopted(write(home / "p.yaml", left="landing", right="right/*/*.jsonl"))


def copied_as_a_whole(home: Path) -> Path:
    shutil.copytree(home, home.parent / "copy")  # as `cp -r` does it, with other times
    for file in (home.parent / "copy" / "landing").rglob("*.jsonl"):
        file.touch()
    return home.parent / "copy" / "p.yaml"


def tables_moved(home: Path) -> Path:
    (home / "warehouse").rename(home.parent / "tables")
    return write(home / "p.yaml", warehouse="../tables")


def tables_and_file_moved(home: Path) -> Path:
    (home / "warehouse").rename(home.parent / "tables")
    (home / "p.yaml").unlink()
    return write(
        home.parent / "p.yaml", left="home/landing/left", right="home/landing/right/*/*.jsonl", warehouse="tables"
    )


MOVES: dict[str, Callable[[Path], Path]] = {
    "the file alone": lambda home: (home / "p.yaml").unlink() or write(home / "conf" / "p.yaml", "../"),
    "the file alone, by absolute paths": lambda home: write(home.parent / "conf" / "p.yaml", f"{home}/"),
    "a copy of the file": lambda home: write(home / "a" / "b" / "p.yaml", "../../"),
    "the whole folder": moved_as_a_whole,
    "a copy of the whole folder": copied_as_a_whole,
    "a link to the folder of the file": linked,
    "the landing folders": landing_moved,
    "the landing folders, behind a link": landing_linked,
    "the landing folders, into folders of the same names": landing_moved_into_itself,
    "the landing folders, out of their folder": landing_moved_out_of_itself,
    "the tables": tables_moved,
    "the tables and the file": tables_and_file_moved,
    "tables and landing folders, mounted elsewhere": lambda home: write(
        home.parent / "conf" / "p.yaml", f"{home.rename(home.parent / 'mnt')}/"
    ),
}


def nothing_is_new(file: Path) -> Pipeline:
    pipeline = load(file)
    found = pipeline.discover()
    assert (found.discovered, found.changed, found.vanished, found.batches) == ((), (), (), ())
    assert not [one for one in found.notices if one.kind in ("vanished", "named")]
    for side, file_ in pipeline.ledger().files.known.items():
        assert Path(pipeline.spec.location(file_.path)).is_file(), side
    return pipeline


def goes_on(file: Path) -> None:
    """Nothing is new; a file that lands, one that changes and one that goes are what they are, at their places."""
    pipeline = nothing_is_new(file)
    before = pipeline.ledger().files.digest(1, Side.LEFT)
    folder = Path(landing_base(pipeline.spec, Side.LEFT))
    (folder / "late-1.jsonl").write_text("{}\n")
    (folder / "1.jsonl").write_text("{}\n")
    found = pipeline.discover()
    assert [Path(pipeline.spec.location(one.path)) for one in found.discovered] == [folder / "late-1.jsonl"]
    assert [Path(pipeline.spec.location(one.path)) for one in found.changed] == [folder / "1.jsonl"]
    assert (pipeline.ledger().batches, found.batches) == ([1, 2], (1,))
    assert [one.path.rsplit("/", 1)[-1] for one in pipeline.ledger().files.of(1, Side.LEFT)] == [
        "1.jsonl", "late-1.jsonl", "more-1.jsonl",
    ]  # fmt: skip
    assert [one.known_as for one in pipeline.ledger().files.of(1, Side.LEFT)][1] == "landing/left/late-1.jsonl"
    assert pipeline.ledger().files.digest(1, Side.LEFT) != before
    (folder / "2.jsonl").unlink()
    assert [Path(pipeline.spec.location(one.path)) for one in pipeline.discover().vanished] == [folder / "2.jsonl"]


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_every_known_file_stays_known_whatever_moves(move: Callable[[Path], Path], home: Path) -> None:
    (home.parent / "a folder" / "deeper").mkdir(parents=True)
    goes_on(move(home))


@pytest.mark.parametrize("move", ["the file alone, by absolute paths", "a copy of the file"])
def test_two_pipeline_files_over_the_same_folders_take_turns(move: str, home: Path) -> None:
    other = MOVES[move](home)
    for file in (home / "p.yaml", other, home / "p.yaml", other):
        nothing_is_new(file)
    goes_on(other)
    assert [one.path for one in load(home / "p.yaml").discover().vanished] == ["landing/left/2.jsonl"]


def test_an_edited_path_that_leads_to_the_same_files_is_adopted_and_they_stay_known(home: Path) -> None:
    nothing_is_new(adopted(write(home / "p.yaml", left="landing/l*t/*.jsonl", right="landing/right/[xy]/*.jsonl")))
    nothing_is_new(adopted(write(home / "p.yaml", left="landing/left/*.jsonl")))
    wider = {"left": "landing/left/*.jsonl", "right": "landing/*/?/*.jsonl"}
    nothing_is_new(adopted(write(home / "conf" / "p.yaml", "../", **wider)))
    goes_on(adopted(write(home / "p.yaml")))


def one_gone(left: Path) -> None:
    (left / "2.jsonl").unlink()


def one_changed(left: Path) -> None:
    (left / "2.jsonl").write_text('{"id": 2, "fk": "b", "v": "rewritten"}\n')


def one_new(left: Path) -> None:
    (left / "3.jsonl").write_text('{"id": 3, "fk": "c", "v": "new"}\n')


def one_more_of_a_batch(left: Path) -> None:
    (left / "more-2.jsonl").write_text('{"id": 3, "fk": "c", "v": "new"}\n')


@pytest.mark.parametrize("contents", ["changes", "snapshot"])
@pytest.mark.parametrize("sides", [("left",), ("left", "right")], ids=["one side", "both sides"])
@pytest.mark.parametrize(
    ("then", "vanished", "changed", "discovered", "batches"),
    [
        (None, [], [], [], []),
        (one_gone, ["2.jsonl"], [], [], []),
        (one_changed, [], ["2.jsonl"], [], [2]),
        (one_new, [], [], ["3.jsonl"], [3]),
        (one_more_of_a_batch, [], [], ["more-2.jsonl"], [2]),
    ],
    ids=["nothing", "one gone", "one changed", "a new batch", "a new file of a batch"],
)
@pytest.mark.parametrize("into", ["moved", "landing/in"])
def test_what_happened_on_the_way_is_what_it_is(
    tmp_path: Path, into: str, sides: tuple[str, ...], contents: str, then: Callable[[Path], None] | None,
    vanished: list[str], changed: list[str], discovered: list[str], batches: list[int],
) -> None:  # fmt: skip
    """Landing folders move, and a file goes, changes or lands: nothing else is new, gone, or due."""
    file = tmp_path / "p.yaml"

    def written(place: dict[str, str]) -> Path:
        paths = {side: place.get(side, "landing/" + side) for side in ("left", "right")}
        text = TEXT.format(form="rows", warehouse="warehouse", **paths)
        file.write_text(text.replace("format: rows", f"format: rows, contents: {contents}"))
        return file

    land(tmp_path, "left/1.jsonl", "left/2.jsonl", "right/1.jsonl", "right/2.jsonl")
    load(written({})).discover()
    before = digests(load(file))
    place = {}
    for side in sides:
        target = tmp_path / (f"landing/{side}/in" if into == "landing/in" else f"moved/{side}")
        (tmp_path / "landing" / side).rename(tmp_path / "aside")
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "aside").rename(target)
        place[side] = str(target.relative_to(tmp_path))
    pipeline = load(adopted(written(place)))
    if then is not None:
        then(tmp_path / place["left"])
    found = pipeline.discover()
    at = f"{place['left']}/"
    assert [one.path for one in found.vanished] == [at + name for name in vanished]
    assert [one.path for one in found.changed] == [at + name for name in changed]
    assert [one.path for one in found.discovered] == [at + name for name in discovered]
    assert list(found.batches) == batches
    after = digests(pipeline)
    assert {*after} == {*before} | {f"landing/left/{name}" for name in discovered}
    assert [name for name in before if after[name] != before[name]] == [f"landing/left/{name}" for name in changed]
    found = load(file).discover()
    assert (found.discovered, found.changed, found.batches) == ((), (), ())


def digests(pipeline: Pipeline) -> dict[str, str]:
    """Per name in the ledger, the digest of a file."""
    return {one.known_as: one.digest for one in pipeline.ledger().files.known.values()}


def older(home: Path, before: Callable[[str], str] = lambda path: path) -> None:
    """Makes the ledger as an older version wrote it: with paths from the pipeline file that ran, as it had them."""
    tables = home / "warehouse" / "orders"
    rows = {table: Entries(str(tables)).rows(table) for table in ("files", "batches", "fingerprints")}
    digests = {}
    for row in rows["files"]:
        row["path"] = before(row["path"])
        digests[row["path"]] = row["digest"]
    for row in rows["batches"]:
        row["files"] = [before(path) for path in row["files"]]
        row["input"] = hashlib.sha256("".join(f"{f}\0{digests[f]}\n" for f in row["files"]).encode()).hexdigest()
    parts = set(map(claimed_name, SIDES))
    rows["fingerprints"] = [row for row in rows["fingerprints"] if row["part"] not in parts]
    for table, kept in rows.items():
        shutil.rmtree(tables / table)
        Entries(str(tables)).add(table, kept)


@pytest.mark.parametrize(
    "move", ["the file alone", "the whole folder", "the landing folders", "the tables and the file"]
)
def test_a_ledger_of_an_older_version_goes_on(move: str, home: Path) -> None:
    older(home)
    (home.parent / "a folder" / "deeper").mkdir(parents=True)
    goes_on(MOVES[move](home))


def test_paths_of_an_older_ledger_that_lead_upwards_stay_known(home: Path) -> None:
    (home / "p.yaml").unlink()
    file = write(home / "conf" / "p.yaml", "../")
    load(file).discover()
    older(home, lambda path: f"../{path}")
    nothing_is_new(file)
    moved = home.rename(home.parent / "moved")
    nothing_is_new(moved / "conf" / "p.yaml")
    nothing_is_new(write(moved / "p.yaml"))


def test_paths_of_an_older_ledger_that_lead_through_their_folder_and_back_stay_known(home: Path) -> None:
    (home / "p.yaml").unlink()
    file = write(home / "conf" / "p.yaml", "../")
    file.write_text(file.read_text().replace("landing/left", "landing/left/../left"))
    load(file).discover()
    older(home, lambda path: "../" + path.replace("landing/left/", "landing/left/../left/"))
    nothing_is_new(file)


def test_files_that_an_older_version_knew_twice_are_one_again(home: Path) -> None:
    """The pipeline file ran, then one in another folder: each file was new and gone, and both pipelines stood still."""
    older(home)
    tables = str(home / "warehouse" / "orders")
    for table, column in (("files", "path"), ("batches", "files")):
        rows = [
            {k: v for k, v in row.items() if k not in ("entry", "recorded_at")} for row in Entries(tables).rows(table)
        ]
        for row in rows:
            path = row[column]
            row[column] = f"../{path}" if column == "path" else [*path, *(f"../{one}" for one in path)]
        Entries(tables).append(table, rows)
    ran = [{"part": "pipeline file", "value": str(home / "conf" / "p.yaml")}]
    Entries(tables).append("fingerprints", ran)
    pipeline = load(home / "p.yaml")
    pipeline.discover()
    assert nothing_is_new(home / "p.yaml").ledger().batches == [1, 2]
    assert [one.path for one in pipeline.ledger().files.of(1, Side.LEFT)] == [
        "landing/left/1.jsonl", "landing/left/more-1.jsonl",
    ]  # fmt: skip


def test_files_that_were_first_known_by_absolute_paths_move_as_well(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "conf" / "p.yaml"
    land(home, "left/1.jsonl", "right/x/1.jsonl")
    load(write(file, f"{home}/")).discover()
    assert nothing_is_new(write(home / "p.yaml")).look().vanished == ()
    mounted = home.rename(tmp_path / "mnt")
    [known] = nothing_is_new(write(file, f"{mounted}/")).ledger().files.of(1, Side.LEFT)
    assert (known.path, known.known_as) == (f"{mounted}/landing/left/1.jsonl", f"{home}/landing/left/1.jsonl")
    nothing_is_new(mounted / "p.yaml")


def test_versions_of_a_table_stay_known(tmp_path: Path) -> None:
    home = tmp_path / "home"
    land(home, "left/1.jsonl")
    names = {"right": "tables/names"}
    write_deltalake(home / "tables" / "names", pa.table({"k": ["a"], "name": ["A"]}))
    load(write(home / "p.yaml", **names)).discover()
    write_deltalake(home / "tables" / "names", pa.table({"k": ["b"], "name": ["B"]}), mode="append")
    moved = load(write(home / "conf" / "p.yaml", "../", **names))
    found = moved.discover()
    assert [one.path for one in found.discovered] == [f"{home}/tables/names@..1"]
    assert [one.known_as for one in moved.ledger().files.of_side(Side.RIGHT)] == [
        "tables/names@..0", "tables/names@..1",
    ]  # fmt: skip
    assert load(home / "p.yaml").discover().discovered == ()


def test_a_path_in_a_message_says_where_a_place_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(home / "conf" / "p.yaml", "../")
    (home / "landing" / "left" / "1.jsonl").unlink()
    (home / "landing" / "left" / "2.txt").touch()
    monkeypatch.chdir(home / "landing" / "left")
    said = []
    for name in ("plan", "status"):
        done = CliRunner().invoke(app, [name, "../../conf/p.yaml"])
        assert done.exit_code == 0
        said.append((done.stdout + done.stderr).replace("'fk-pipeline run ../../conf/p.yaml'", "the command"))
        assert f"known file is gone: {home}/landing/left/1.jsonl" in " ".join(said[-1].split())
    (home / "landing" / "right").rename(home / "landing" / "other")
    for file in (write(home / "conf" / "new.yaml", "../", warehouse="new"), home / "conf" / "p.yaml"):
        with pytest.raises((PipelineFileError, StateError)) as refused:
            load(f"../../conf/{write(file, '../', left='landing/lost', warehouse='new').name}").discover()
        said.append(str(refused.value))
        assert f"{home}/landing/lost" in said[-1]
    assert not [text for text in said if "../" in text or "/.." in text]


def test_a_link_to_a_pipeline_file_is_told_where_its_paths_count_from(home: Path) -> None:
    link = home.parent / "p.yaml"
    link.symlink_to(home / "p.yaml")
    with pytest.raises(PipelineFileError, match="there is no file or folder") as refused:
        load(link).discover()
    assert f"{link} is a link, and its paths count from there: name {home}/p.yaml" in refused.value.fix
    assert not (home.parent / "warehouse" / "orders" / "files").exists()


def test_a_file_is_held_back_while_another_of_its_batch_is_gone(home: Path) -> None:
    folder = home / "landing" / "left"
    file = (folder / "1.jsonl").rename(folder / "b1.jsonl")
    land(home, "left/3.jsonl", "right/z/1.jsonl")
    pipeline = load(home / "p.yaml")
    for found in (pipeline.look(), pipeline.discover()):
        assert [one.path for one in found.discovered] == ["landing/left/3.jsonl", "landing/right/z/1.jsonl"]
        told = [str(one) for one in found.notices if one.kind == "held back"]
        without = "Batch 1 cannot be read again without landing/left/1.jsonl, which is gone: restore it"
        assert told == [f"left: 1 file is held back: landing/left/b1.jsonl. {without}"]
    assert "landing/left/b1.jsonl" not in {path for _, path in pipeline.ledger().files.known}
    file.rename(folder / "1.jsonl")
    assert pipeline.discover().notices == ()
    (folder / "1.jsonl").unlink()
    land(home, "left/more-1.jsonl")
    (folder / "more-1.jsonl").write_text("{}\n")
    assert pipeline.discover().changed == (), "its content would be read without the file that is gone"
    with pytest.raises(UsageError, match=r"could not be brought back: landing/left/1\.jsonl is gone") as refused:
        pipeline.remove_batch(1)
    assert "its rows would be lost; nothing was withdrawn" in refused.value.why
    assert pipeline.ledger().files.removed == set()
    done = CliRunner().invoke(app, ["remove-batch", str(home / "p.yaml"), "1", "--forget"])
    assert done.exit_code == 0
    assert [one.path for one in pipeline.discover().changed] == ["landing/left/more-1.jsonl"], "it waits with its batch"


@pytest.mark.spark
def test_the_rest_is_done_before_a_file_that_is_held_back_is_an_error(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    first = ["left_changelog"]
    made.land(0, [(1, "a", "v")])
    made.pipeline.run(stages=first)
    folder = made.folder / "landing" / "left"
    (folder / "00000000.jsonl").rename(folder / "moved-00000000.jsonl")
    made.land(1, [(2, "a", "w")])
    with pytest.raises(HeldBackError, match=r"moved-00000000\.jsonl is not read: without .*/00000000\.jsonl") as held:
        made.pipeline.run(stages=first)
    assert [(one.stage, str(one.batches)) for one in held.value.done] == [("left_changelog", "1")]
    assert made.pipeline.run("1", first)
    with pytest.raises(HeldBackError):
        made.pipeline.run("0", first)
    (folder / "moved-00000000.jsonl").rename(folder / "00000000.jsonl")
    assert made.pipeline.run(stages=first) == []


@pytest.mark.spark
def test_what_was_read_is_read_again_as_the_same_after_a_move(tmp_path: Path, spark: Any) -> None:
    """Events without a key keep theirs, a correction finds its line, and no file of several is lost behind `..`."""
    file, first = tmp_path / "home" / "p.yaml", ["left_changelog"]
    land(file.parent, "left/0.jsonl", "left/more-0.jsonl")
    with (file.parent / "landing" / "left" / "0.jsonl").open("a") as stream:
        stream.write('{"id": 2, "fk": bad}\n')
    events = TEXT.replace('v STRING", key: id,', 'v STRING", contents: events,')
    paths = {"left": "landing/left", "right": "landing/right", "form": "rows", "warehouse": "warehouse"}
    file.write_text(events.format(**paths))
    (file.parent / "landing" / "right").mkdir()

    def read(pipeline: Pipeline) -> set[tuple[str, str]]:
        return {(row["event"], row["v"]) for row in pipeline.table("left_changelog").collect()}

    before = Pipeline(load(file).spec, spark)
    before.run(stages=first)
    landed = {("0/landing/left/0.jsonl/1", "left/0.jsonl"), ("0/landing/left/more-0.jsonl/1", "left/more-0.jsonl")}
    assert read(before) == landed
    edited = tmp_path / "bad.jsonl"
    before.export_quarantine(edited)
    record = json.loads(edited.read_text())
    edited.write_text(json.dumps(record | {"raw": '{"id": 2, "fk": "a", "v": "good"}'}) + "\n")
    folder = file.parent.rename(tmp_path / "moved") / "conf"
    folder.mkdir()
    moved = folder / "p.yaml"
    moved.write_text(events.format(**{name: f"../{path}" if name != "form" else path for name, path in paths.items()}))
    after = Pipeline(load(moved).spec, spark)
    assert after.correct(edited).corrections == 1
    [ran] = after.run(stages=first)
    assert (ran.notes, ran.counts[0]["corrected"], ran.counts[0]["read"]) == ((), 1, 3)
    assert read(after) == landed | {("0/landing/left/0.jsonl/2", "good")}
    assert after.correct(edited).known == 1


@pytest.mark.slow  # what is adopted: the tests of moved folders; its rows: the test before
@pytest.mark.spark
def test_a_run_that_adopts_reads_what_landed_since_and_nothing_twice(tmp_path: Path, spark: Any) -> None:
    """Events without a key are known by file and line: those of the folder that moved into itself keep theirs."""
    file, events = tmp_path / "p.yaml", TEXT.replace('v STRING", key: id,', 'v STRING", contents: events,')

    def run(left: str, *options: str) -> None:
        file.write_text(events.format(left=left, right="landing/right", form="rows", warehouse="warehouse"))
        done = CliRunner().invoke(app, ["run", str(file), "--stages", "left_changelog", *options])
        assert done.exit_code == 0, done.stderr

    land(tmp_path, "left/1.jsonl", "left/2.jsonl")
    (tmp_path / "landing" / "right").mkdir()
    run("landing/left")
    (tmp_path / "landing" / "left").rename(tmp_path / "aside")
    (tmp_path / "landing" / "left").mkdir()
    (tmp_path / "aside").rename(tmp_path / "landing" / "left" / "in")
    land(tmp_path, "left/in/more-2.jsonl", "left/in/3.jsonl")
    run("landing/left/in", "--adopt")
    rows = Pipeline(load(file).spec, spark).table("left_changelog").collect()
    assert {(row["event"], row["v"]) for row in rows} == {
        ("1/landing/left/1.jsonl/1", "left/1.jsonl"), ("2/landing/left/2.jsonl/1", "left/2.jsonl"),
        ("2/landing/left/more-2.jsonl/1", "left/in/more-2.jsonl"), ("3/landing/left/3.jsonl/1", "left/in/3.jsonl"),
    }  # fmt: skip
