"""What is damaged of a table, found without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.engine.damage import telling_damage
from fk_pipeline.errors import ConcealedError, StateError
from fk_pipeline.privacy import concealing
from fk_pipeline.spec import load_spec
from fk_pipeline.store.damage import Damage, DamagedTableError, damage_in, damage_of, has_files_only, put_aside
from fk_pipeline.store.ledger.entries import Entries, rows_in_files


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    """Two commits of a ledger table."""
    entries = Entries(str(tmp_path))
    for value in ("one", "two"):
        entries.append("fingerprints", [{"part": value, "value": value}])
    return entries


def files(entries: Entries) -> list[Path]:
    return sorted(map(Path, DeltaTable(f"{entries.home}/fingerprints").file_uris()))


def damage(entries: Entries) -> Damage:
    found = damage_of(entries.home, "fingerprints")
    assert found is not None
    return found


def test_a_whole_table_and_one_that_is_not_there_are_not_damaged(entries: Entries) -> None:
    assert damage_of(entries.home, "fingerprints") is None
    assert damage_of(entries.home, "runs") is None
    assert not has_files_only(entries.home, "fingerprints")
    assert not has_files_only(entries.home, "runs")


def test_commits_that_a_checkpoint_stands_for_may_go_and_the_checkpoint_may_not(entries: Entries) -> None:
    log = Path(entries.home, "fingerprints", "_delta_log")
    DeltaTable(str(log.parent)).create_checkpoint()
    entries.append("fingerprints", [{"part": "three", "value": "three"}])
    (log / f"{0:020d}.json").unlink()
    assert damage_of(entries.home, "fingerprints") is None
    assert len(Entries(entries.home).rows("fingerprints")) == 3
    [checkpoint] = log.glob("*.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    assert (damage(entries).of_log, damage(entries).file) == (True, str(log))


@pytest.mark.parametrize("content", [b"", b"\n", b"[]\n", b'{"add": ', b"\xff\n", b'{"commitInfo": {}}\n}'])
def test_a_commit_is_one_object_per_line(entries: Entries, content: bytes) -> None:
    commit = Path(entries.home, "fingerprints", "_delta_log", f"{1:020d}.json")
    commit.write_bytes(content)
    assert str(damage(entries)) == f"table fingerprints is damaged: {commit.name} is no commit of a Delta table"


def test_the_rows_of_one_file_in_the_place_of_another_are_found_twice(entries: Entries) -> None:
    one, other = files(entries)
    shutil.copy(one, other)
    assert one.stat().st_size == other.stat().st_size, "or the size tells it"
    assert damage_of(entries.home, "fingerprints") is None, "a listing does not"
    with pytest.raises(DamagedTableError, match="has the rows of one of its files twice"):
        Entries(entries.home).rows("fingerprints")


def test_rows_that_a_damaged_table_still_has_are_found(entries: Entries) -> None:
    log, before = Path(entries.home, "fingerprints", "_delta_log"), entries.rows("fingerprints")
    (log / f"{0:020d}.json").unlink()
    assert [row["part"] for row in rows_in_files(entries.home, "fingerprints")] == ["one", "two"]
    files_before = sorted(log.parent.glob("*.parquet"))
    files_before[0].write_bytes(b"PAR1")
    assert len(rows_in_files(entries.home, "fingerprints")) == 1
    place = put_aside(entries.home, "fingerprints")
    assert sorted(Path(place).glob("*.parquet")) == [Path(place, file.name) for file in files_before]
    again = Entries(entries.home)
    again.add("fingerprints", before)
    assert again.rows("fingerprints") == before


def test_a_file_that_an_error_names_is_read(entries: Entries) -> None:
    file = files(entries)[0]
    said = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:{file}. SQLSTATE: KD001"
    assert damage_in(entries.home, ["fingerprints"], said) is None
    content = bytearray(file.read_bytes())
    content[len(content) // 4 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 4)
    file.write_bytes(content)
    found = damage_in(entries.home, ["fingerprints"], said)
    assert found is not None
    assert (found.table, found.file) == ("fingerprints", str(file))
    assert damage_in(entries.home, ["runs"], said) is None


def test_a_folder_without_a_log_takes_no_table(tmp_path: Path) -> None:
    import pyarrow as pa

    write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}))
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    assert has_files_only(str(tmp_path), "t")


def test_damage_is_told_where_messages_are_concealed(tmp_path: Path) -> None:
    side: dict[str, Any] = {}
    for name, schema in (("left", "id INT, fk STRING"), ("right", "k STRING")):
        (tmp_path / name).mkdir()
        side[name] = f'{{path: {name}, format: rows, schema: "{schema}", key: {"id" if name == "left" else "k"}'
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: p\njoin: left\nleft: {side['left']}, foreign_key: fk, sensitive: [fk]}}\nright: {side['right']}}}\n"
    )
    spec = load_spec(file)
    assert spec.has_sensitive
    damaged = Damage("right_table", f"{spec.home}/right_table/part.parquet", "is gone")
    with pytest.raises(StateError) as told, telling_damage(spec), concealing(spec):
        raise DamagedTableError(damaged)
    assert told.value.what == "table right_table is damaged: part.parquet is gone"
    assert told.value.fix == f"fk-pipeline rebuild {file} --from changelog --stages right_table"
    with pytest.raises(ConcealedError), telling_damage(spec), concealing(spec):
        raise ValueError("something else")
