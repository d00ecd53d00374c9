"""Damaged files of every table: one error that names table, file and command, and the command mends it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fk_pipeline.cli.main import app_main
from fk_pipeline.engine.damage import all_tables
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from tests.damage import DATA, INDEXED, KINDS, LEDGER, TABLES, fill, fill_at_once
from tests.deaths import Killed

pytestmark = pytest.mark.spark

TRACES = ("Traceback", "at org.apache", "Py4J", "panicked", "JVM stacktrace", "DeltaError(", "java.", "pyarrow")
"""Signs of a trace, or of an error in the words of Java, Rust or Python."""


@pytest.fixture(scope="module")
def filled(rows_pipeline: Callable[..., Any]) -> Any:
    made = rows_pipeline("left", INDEXED)
    fill(made)
    return made


@pytest.fixture
def copy(filled: Any, tmp_path: Path) -> Path:
    """A copy of the pipeline with a new batch that has landed."""
    return copied(filled, tmp_path / "copy")


@pytest.fixture(scope="module")
def filled_at_once(rows_pipeline: Callable[..., Any]) -> Any:
    made = rows_pipeline("left", INDEXED)
    fill_at_once(made)
    return made


@pytest.fixture
def small_copy(filled_at_once: Any, tmp_path: Path) -> Path:
    """The same, of tables with one commit."""
    return copied(filled_at_once, tmp_path / "copy")


def copied(filled: Any, folder: Path) -> Path:
    shutil.copytree(filled.folder, folder)
    (folder / "landing/left/00000009.jsonl").write_text('{"op": "u", "id": 6, "fk": "b", "v": "new"}\n')
    (folder / "landing/right/00000009.jsonl").write_text('{"op": "u", "k": "a", "name": "A9"}\n')
    return folder


Said = tuple[int, str]
Command = Callable[..., Said]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Calls the command; returns its status and what it said. Nothing that it says is a trace."""

    def call(*args: Any) -> Said:
        monkeypatch.setattr(sys, "argv", ["fk-pipeline", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app_main()
        said = "".join(capsys.readouterr())
        assert not [sign for sign in TRACES if sign in said], (args, said)
        return int(ended.value.code or 0), said

    return call


def is_the_error(said: Said, table: str, file: Path) -> str:
    """The command that the one error names, after a look at the rest of it."""
    status, text = said
    assert status == 1, text
    assert len(re.findall(r"^\w*Error: ", text, flags=re.MULTILINE)) == 1, text
    assert f"table {table} is damaged: {file.name} " in text
    assert f"StateError: {file}: " in text
    [named] = re.findall(r"^  Fix: fk-pipeline (rebuild .*)$", text, flags=re.MULTILINE)
    return str(named)


def test_the_tables_are_those_of_a_pipeline() -> None:
    assert set(TABLES) == set(all_tables(FOREIGN_KEY))


@pytest.mark.slow
def test_every_damage_of_every_table_is_told_alike_without_spark(copy: Path, tmp_path: Path, command: Command) -> None:
    file, kept = copy / "pipeline.yaml", tmp_path / "kept"
    for table in TABLES:
        folder = copy / "warehouse/tested" / table
        shutil.copytree(folder, kept)
        for kind, damage in KINDS.items():
            damaged = damage(folder)
            told = command(*(("plan", file) if table in LEDGER else ("verify", file, "--no-checks")))
            named = is_the_error(told, table, damaged)
            assert named.startswith(f"rebuild {file} --from "), (table, kind, named)
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
        shutil.rmtree(kept)
    assert command("plan", file)[0] == command("status", file)[0] == 0


OTHERS = (
    ("show", "{table}"), ("export", "--to", "{folder}/out.jsonl"), ("explain", "--key", "6"), ("quarantine",),
    ("impact", "--right-key", "a"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_the_error_names_mends_every_damage(
    copy: Path, command: Command, table: str, kind: str
) -> None:
    file = copy / "pipeline.yaml"
    damaged = KINDS[kind](copy / "warehouse/tested" / table)
    told = []
    for name, *options in OTHERS:
        told.append(command(name, file, *(one.format(table=table, folder=copy) for one in options)))
    if kind in ("cut", "garbled commit") and table in DATA:
        told.append(command("compact", file))
    lost = table == "corrections" and kind in ("cut", "deleted", "replaced")  # only a restore has these
    is_mended(copy, command, table, damaged, told, lost)


def test_the_command_that_the_error_names_mends_it(small_copy: Path, command: Command) -> None:
    damaged = KINDS["deleted"](small_copy / "warehouse/tested/resolved_join")
    is_mended(small_copy, command, "resolved_join", damaged, [])


def is_mended(copy: Path, command: Command, table: str, damaged: Path, told: list[Said], lost: bool = False) -> None:
    """Looks at what was told, and at the rest: that run and verify tell it, too, and that the fix mends it."""
    file = copy / "pipeline.yaml"
    told.append(command("run", file))
    told.append(command("verify", file, "--no-checks"))
    assert {is_the_error(said, table, damaged) for said in told if said[0]}, "verify at least tells it"
    assert {said[0] for said in told} <= {0, 1}
    named = is_the_error(told[-1], table, damaged)
    assert command(*named.split())[0] == 0
    assert command("run", file)[0] == 0
    status, said = command("verify", file, "--no-checks", "--format", "json")
    assert (status, json.loads(said)["due"]) == (0, 0)
    result = [json.loads(line) for line in written(command, copy)]
    found = {row["id"]: (row["v"], row["name"]) for row in result}
    assert found == {key: row for key, row in EXPECTED.items() if key in found or key not in CORRECTED}
    assert len(found) == len(EXPECTED) - lost
    assert not list((copy / "warehouse/tested").glob("rebuilding"))


@pytest.mark.parametrize("error", [FileNotFoundError("no such thing"), KeyError("x"), RuntimeError("a\n  at b.c.d")])
def test_what_nobody_foresaw_is_one_sentence_without_a_trace(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def fail(_: Path) -> None:
        raise error

    file = tmp_path / "p.yaml"
    file.write_text(
        'name: p\njoin: left\nleft: {path: l, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}\n'
        'right: {path: r, format: rows, schema: "k STRING", key: k}\n'
    )
    monkeypatch.setattr("fk_pipeline.pipeline.load", fail)
    status, said = command("status", file)
    assert status == 1
    assert said.startswith(f"{type(error).__name__}: {str(error).splitlines()[0]}\n  Fix: nobody foresaw this. ")


def test_what_only_a_restore_mends_says_so(small_copy: Path, command: Command) -> None:
    file, home = small_copy / "pipeline.yaml", small_copy / "warehouse/tested"
    landed = small_copy / "landing/left/00000001.jsonl"
    kept = landed.rename(small_copy / "kept.jsonl")
    damaged = KINDS["deleted"](home / "left_changelog")
    for call in (("verify", file, "--no-checks"), ("rebuild", file), ("rebuild", file, "--from", "landing")):
        status, said = command(*call)
        assert status == 1
        assert f"table left_changelog is damaged: {damaged.name} is gone" in said
        assert "1 landing file(s) of which it could be made anew are gone, the first: landing/left/0000000" in said
        assert f"Fix: only a restore mends it: of left_changelog from a backup of {home}, together with" in said
        assert "fk-pipeline" not in said
    kept.rename(landed)
    assert is_the_error(command("verify", file, "--no-checks"), "left_changelog", damaged)


def test_a_ledger_without_what_it_must_have_is_no_ledger(small_copy: Path, tmp_path: Path, command: Command) -> None:
    file, home = small_copy / "pipeline.yaml", small_copy / "warehouse/tested"
    for table in ("files", "batches", "runs", "fingerprints"):
        (home / table).rename(tmp_path / table)
        status, said = command("run", file)
        assert status == 1, table
        assert "StateError: " in said, table
        assert f"fk-pipeline rebuild {file} --from landing" in said, table
        shutil.rmtree(home / table, ignore_errors=True)
        (tmp_path / table).rename(home / table)


@pytest.mark.slow
def test_bytes_that_were_changed_in_place_are_told_by_what_reads_them(copy: Path, command: Command) -> None:
    file = copy / "pipeline.yaml"
    damaged = max(current(copy / "warehouse/tested/resolved_join"), key=lambda one: one.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[20:60] = bytes(40)
    damaged.write_bytes(content)
    named = is_the_error(command("export", file, "--to", copy / "out.jsonl"), "resolved_join", damaged)
    assert command(*named.split())[0] == 0
    assert command("run", file)[0] == command("verify", file, "--no-checks")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("death", ["before commit of right_table", "before commit of resolved_join"])
def test_a_rebuild_reads_nothing_that_it_replaces_after_one_that_died_either(
    copy: Path, command: Command, death: str
) -> None:
    file, home = copy / "pipeline.yaml", copy / "warehouse/tested"
    ready: list[str] = []

    def die(point: str) -> None:
        ready.extend([point] if point == "after entry in rebuilds" else [])
        if ready and point == death:
            raise Killed

    with faults.listening(die), pytest.raises(Killed):
        Pipeline(load_spec(file)).rebuild("landing")
    for table, kind in (("resolved_join", "replaced"), ("quarantine", "cut"), ("left_changelog", "garbled commit")):
        KINDS[kind](home / table)
    status, said = command("verify", file, "--no-checks")
    assert status == 1
    [named] = re.findall(r"fk-pipeline ((?:run|rebuild) \S+(?: --from landing)?)", said)
    for call in (named.split(), ["run", file], ["verify", file, "--no-checks"]):
        status, said = command(*call)
        assert status == 0, said


def current(table: Path) -> list[Path]:
    return list(map(Path, DeltaTable(str(table)).file_uris()))


CORRECTED = (41, 42)
EXPECTED = {
    2: ("w2", "B1"), 3: ("w3", "C"), 5: ("v5", "B1"), 6: ("new", "B1"), 7: ("v7", "B1"), 8: ("v8", "A9"),
    41: ("w", "A9"), 42: ("w", "B1"),
}  # fmt: skip
"""By id the value and the name of the right row, after all batches."""


def written(command: Command, folder: Path) -> list[str]:
    assert command("export", folder / "pipeline.yaml", "--to", folder / "out.jsonl")[0] == 0
    return (folder / "out.jsonl").read_text().splitlines()
