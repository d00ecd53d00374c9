"""What the driver writes by itself, most of it in S3: a commit is one step, and a table file is fetched once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError

from fk_pipeline.environment import storage
from fk_pipeline.store import table_files
from fk_pipeline.store.driver_writes import DriverWriter
from fk_pipeline.store.fetched_files import FetchedFiles
from fk_pipeline.store.local import greatest, locate, look_up
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.marked_writes import MarkedWriter, merge_of
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.table_files import PlainFiles

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
TABLE = Table("state", (("k", "BIGINT"), ("v", "STRING")), keys=("k",), skip_by=("k",))
UNLIMITED = 1_000


def rows(*some: tuple[int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*some, strict=True)], schema=SCHEMA)


def stored(path: str) -> list[tuple[int, str]]:
    table = DeltaTable(path, storage_options=storage.delta_options(path))
    found = QueryBuilder().register("t", table).execute("SELECT k, v FROM t ORDER BY k")
    return [(row["k"], row["v"]) for row in pa.RecordBatchReader.from_stream(found).read_all().to_pylist()]


@pytest.fixture
def marked(s3: str) -> str:
    """A table of four rows in two files, with deletion vectors."""
    path = f"{s3}/state"
    options = storage.delta_options(path)
    write_deltalake(path, rows((1, "a"), (2, "b")), storage_options=options)
    table = DeltaTable(path, storage_options=options)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    write_deltalake(path, rows((3, "c"), (4, "d")), mode="append", storage_options=options)
    return path


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedFiles:
    """The copies of a process that has none yet."""
    made = FetchedFiles(tmp_path / "copies")
    monkeypatch.setattr(table_files, "fetched_files", lambda: made)
    return made


def files_of(logs: DeltaLogs, path: str) -> PlainFiles:
    files = logs.plain_files(path, logs.version(path) or 0, UNLIMITED)
    assert files is not None
    return files


def merged(logs: DeltaLogs, path: str, new: pa.Table) -> None:
    """Merges rows with a `gone` column as `DriverCommits` does."""
    table = logs.table(path)
    assert table is not None
    places = locate(files_of(logs, path), new.select(["k"]), Sizes())
    assert places is not None
    merge = merge_of(new, places, TABLE, SCHEMA, delete_when="gone")
    assert MarkedWriter(logs, Sizes()).commit(path, table, table.version(), merge, TABLE, "told")
    logs.keep(path, table)


def test_merges_mark_the_old_rows(marked: str, copies: FetchedFiles) -> None:
    logs, gone = DeltaLogs(), pa.array([False, True, False])
    merged(logs, marked, rows((1, "anew"), (4, ""), (5, "e")).append_column("gone", gone))
    assert stored(marked) == [(1, "anew"), (2, "b"), (3, "c"), (5, "e")]
    merged(logs, marked, rows((1, "again")).append_column("gone", pa.array([False])))
    assert stored(marked) == [(1, "again"), (2, "b"), (3, "c"), (5, "e")]
    assert DeltaLogs().rows(marked) == 4


def test_a_merge_after_another_ones_commit_is_refused(marked: str, copies: FetchedFiles) -> None:
    logs, new = DeltaLogs(), rows((1, "mine")).append_column("gone", pa.array([False]))
    table = logs.table(marked)
    assert table is not None
    places, version = locate(files_of(logs, marked), new.select(["k"]), Sizes()), table.version()
    assert places is not None
    write_deltalake(marked, rows((9, "theirs")), mode="append", storage_options=storage.delta_options(marked))
    merge = merge_of(new, places, TABLE, SCHEMA, delete_when="gone")
    with pytest.raises(CommitFailedError, match=f"version {version + 1} of state"):
        MarkedWriter(logs, Sizes()).commit(marked, table, version, merge, TABLE, "told")
    assert stored(marked) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (9, "theirs")]


def test_few_rows_are_appended_and_merged(s3: str, copies: FetchedFiles) -> None:
    path, logs = f"{s3}/new", DeltaLogs()
    writer = DriverWriter(logs, Sizes())
    assert writer.may_append(path, TABLE, 2)
    writer.append(path, rows((1, "a"), (2, "b")), TABLE, "{}", SCHEMA)
    writer.append(path, rows((3, "c")), TABLE, "{}", SCHEMA, only_at=0)
    with pytest.raises(CommitFailedError):
        writer.append(path, rows((4, "d")), TABLE, "{}", SCHEMA, only_at=0)
    table = writer.rewritable(path, TABLE, [])
    assert table is not None
    new = rows((2, "anew"), (3, "")).append_column("gone", pa.array([False, True]))
    writer.merge(table, new, TABLE, "{}", SCHEMA, delete_when="gone")
    assert stored(path) == [(1, "a"), (2, "anew")]


def test_a_folder_with_files_and_no_log_is_no_new_table(s3: str) -> None:
    storage.write_new(f"{s3}/lost/part-0.parquet", b"")
    assert not DriverWriter(DeltaLogs(), Sizes()).may_append(f"{s3}/lost", TABLE, 1)


def test_beside_a_log_store_for_several_drivers_spark_commits(s3: str) -> None:
    assert not DriverWriter(DeltaLogs(), Sizes(), in_s3=False).may_append(f"{s3}/new", TABLE, 1)


def test_keys_are_looked_up_in_copies_that_are_fetched_once(
    marked: str, copies: FetchedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(DeltaLogs(), marked)
    keys = {"k": pa.chunked_array([[2, 3, 7]])}
    first = look_up(files, ["k", "v"], keys, [], Sizes())
    assert first is not None
    assert sorted(first.to_pylist(), key=str) == [{"k": 2, "v": "b"}, {"k": 3, "v": "c"}]
    monkeypatch.setattr(FetchedFiles, "_fetch", lambda *_: pytest.fail("a file is fetched again"))
    again = look_up(files, ["k", "v"], keys, [], Sizes())
    assert again is not None
    assert sorted(again.to_pylist(), key=str) == sorted(first.to_pylist(), key=str)
    assert sorted(greatest(files, "k", Sizes()) or ()) == [2, 4]


def test_more_than_the_driver_fetches_is_left_to_spark(marked: str, copies: FetchedFiles) -> None:
    files, few = files_of(DeltaLogs(), marked), Sizes(fetched_bytes=10)
    assert look_up(files, ["k"], {"k": pa.chunked_array([[2]])}, [], few) is None
    assert greatest(files, "k", few) is None
    assert look_up(files, ["k"], {"k": pa.chunked_array([[2]])}, [], Sizes()) is not None
    assert sorted(greatest(files, "k", few) or ()) == [2, 4], "there are copies now"


def test_the_copies_that_nobody_read_for_longest_are_removed(s3: str, tmp_path: Path) -> None:
    names = [f"{s3}/table/{name}" for name in "abc"]
    for name in names:
        storage.write_new(name, b"0123456789")
    copies = FetchedFiles(tmp_path, most_bytes=20)
    a, b = copies.copies({names[0]: 10})[names[0]], copies.copies({names[1]: 10})[names[1]]
    copies.copies({names[0]: 10})
    copies.copies({names[2]: 10})
    assert Path(a).exists()
    assert not Path(b).exists()
    assert copies.lacking(dict.fromkeys(names, 10)) == 10
    paths = copies.copies(dict.fromkeys(names, 10)).values()
    assert all(Path(path).read_bytes() == b"0123456789" for path in paths), "what one search needs stays together"


@pytest.mark.parametrize(("exists", "error"), [(True, "has 10 bytes, and 9 in the log"), (False, None)])
def test_a_file_of_another_size_or_that_is_gone_is_an_error(
    s3: str, tmp_path: Path, exists: bool, error: str | None
) -> None:
    if exists:
        storage.write_new(f"{s3}/table/a", b"0123456789")
    copies = FetchedFiles(tmp_path)
    with pytest.raises(OSError, match=error):
        copies.copies({f"{s3}/table/a": 9})
    assert copies.lacking({f"{s3}/table/a": 9}) == 9


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_a_new_file_is_written_once(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    file = f"{tmp_path}/new" if place == "disk" else f"{request.getfixturevalue('s3')}/new"
    assert storage.write_new(file, b"mine")
    assert not storage.write_new(file, b"theirs")
    with storage.opened(file) as stream:
        assert stream.read() == b"mine"
    assert place == "disk" or storage.write_new(file, b"mine"), "the reply to the first put may have got lost"
    assert place == "s3" or [found.name for found in tmp_path.iterdir()] == ["new"]


def test_a_file_with_a_random_name_is_there_or_its_commit_is_not_made(s3: str) -> None:
    storage.write_named(f"{s3}/part-0", b"mine")
    with pytest.raises(FileExistsError):
        storage.write_named(f"{s3}/part-0", b"theirs")


def test_threads_that_lack_a_file_get_whole_copies(s3: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4_000
    storage.write_new(f"{s3}/table/a", content)
    for attempt in range(5):
        copies = FetchedFiles(tmp_path / str(attempt))
        with ThreadPoolExecutor(4) as pool:
            paths = [*pool.map(lambda _, copies=copies: copies.copies({f"{s3}/table/a": len(content)}), range(4))]
        assert all(Path(path).read_bytes() == content for found in paths for path in found.values())


@pytest.mark.parametrize("days", [95_026_601, -800_000, 0])
def test_dates_of_any_year_are_appended(tmp_path: Path, days: int) -> None:
    table = Table("dated", (("day", "DATE"),), skip_by=("day",))
    schema = pa.schema([("day", pa.date32())])
    rows = pa.table([pa.array([days, None], pa.int32()).cast(pa.date32())], schema=schema)
    path = str(tmp_path / "dated")
    DriverWriter(DeltaLogs(), Sizes()).append(path, rows, table, "{}", schema)
    stored = DeltaTable(path)
    [file] = stored.file_uris()
    assert pq.read_table(file)["day"].cast(pa.int32()).to_pylist() == [days, None]
    bounds = pa.table(stored.get_add_actions(flatten=True)).to_pylist()[0].get("max.day")
    assert (bounds is not None) == (days == 0)
