"""The independent reader of each format, file by file: what becomes of each line."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.spec import SideSpec
from fk_pipeline.store.ledger.corrections import digest_of
from fk_pipeline.verify.inputs import inputs
from fk_pipeline.verify.inputs.buckets import Buckets
from fk_pipeline.verify.inputs.doubts import ANY, NotReadError
from fk_pipeline.verify.inputs.inputs import reader_of
from fk_pipeline.verify.inputs.landed import Fate, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.sent import Written

SCHEMA = "id INT, k STRING, d DATE"


NOT_SHARED = (
    "csv",
    "debezium",
    "dms",
    "maxwell",
    "columnar",
    "rows",
    "json_lines",
    "records",
    "values",
    "reader",
    "parquet",
)
"""The modules of `fk_pipeline.cdc` that read records: a reader that shared them would repeat their mistakes."""


def test_the_reader_is_independent() -> None:
    shared = {f"fk_pipeline.cdc.{name}" for name in NOT_SHARED}
    folder = Path(inputs.__file__).parent
    for file in [*folder.glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not shared & {*names}, file


class Landed:
    """Reads files of a side."""

    def __init__(self, folder: Path, format_: str, **changes: Any) -> None:
        given = {"path": "x", "format": format_, "schema": SCHEMA, "key": "id"} | changes
        self.side = SideSpec.model_validate({name: value for name, value in given.items() if value is not None})
        self.folder = folder

    def entries(
        self, content: str | bytes, name: str = "1.jsonl", texts: Any = None, limit: int = 1 << 20
    ) -> list[LandedRecord]:
        file = self.folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        place = FilePlace(str(file), str(file), f"landing/{name}", 7, 0, texts or {})
        return list(reader_of(InputColumns(self.side), limit).entries(place))

    def told(self, content: str | bytes, name: str = "1.jsonl", **more: Any) -> list[Any]:
        """Per record its fate, and what it is about: operation, key and values, or the reason."""
        return [told(one) for one in self.entries(content, name, **more)]


def told(one: LandedRecord) -> Any:
    if one.fate is Fate.WRITTEN:
        return one.op, one.key, one.values
    if one.fate is Fate.DELETED:
        return one.op, one.key
    return one.op or one.fate.value, one.reason


def bad(reason: str) -> Any:
    return "quarantined", reason


def lines(*values: Any) -> str:
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in values)


def test_plain_rows(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "rows", op_column="op")
    found = landed.told(
        lines(
            '\ufeff{"op": "Upsert", "ID": 1, "k": 1.50, "d": "2024-05-01", "other": []}',
            {"op": "delete", "id": 2, "d": "nonsense"},
            {"op": "T"},
            {"op": "-U", "id": 1},
            {"op": "update_preimage", "id": 1},
            "",
            {"op": "upserted", "id": 3},
            {"id": 3},
            {"op": "c", "k": "a"},
            {"op": "c", "id": 4, "d": 20240501},
            "[]",
            "{} {}",
            "{'id': 5}",
        )
    )
    assert found == [
        ("u", (1,), ("1.50", 19844)),
        ("d", (2,)),
        ("t", ""),
        ("d", (1,)),
        ("ignored", "old image"),
        ("ignored", "empty line"),
        bad("an unknown operation"),
        bad("no operation in op"),
        bad("key column id is null"),
        bad("column d is not DATE"),
        bad("not a JSON object"),
        bad("not a JSON object"),
        bad("not a JSON object"),
    ]
    assert [one.doubt for one in landed.entries("[]\n{'id': 5}\n")] == [False, True]


def test_bytes_of_a_file_of_lines(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "rows")
    assert landed.told(b'{"id": 1, "k": "\xff"}\n{"id": 2}') == [bad("not UTF-8"), ("u", (2,), (None, None))]
    cut = gzip.compress(lines({"id": 1}, {"id": 2}).encode())[:-9]
    *whole, last = landed.told(cut, "1.jsonl.gz")
    assert last[0] == "quarantined"
    assert last[1].startswith("unreadable from byte ")
    assert ("u", (1,), (None, None)) in whole
    long = lines({"id": 1}, {"id": 2, "k": "x" * 500}, {"id": 3})
    assert landed.told(long, limit=200)[1] == bad("longer than 200 bytes")
    right = {digest_of("{id: 1}"): '{"id": 1}'}
    assert landed.told("{id: 1}\n", texts=right) == [("u", (1,), (None, None))]


def test_order_and_expressions_of_the_pipeline_file(tmp_path: Path) -> None:
    by_column = Landed(tmp_path, "rows", sequence_by="d", op_column="op", schema=SCHEMA + ", gone BOOLEAN")
    row = {"op": "d", "id": 1, "d": "2024-05-01"}
    assert [one.order for one in by_column.entries(lines(row, {"op": "t"}))] == [(19844,), None]
    assert by_column.told(lines({"op": "c", "id": 1})) == [bad("sequence_by is null")]
    by_sql = Landed(tmp_path, "rows", sequence_by="d + 1", delete_when="UPPER(k) = 'X'")
    [one] = by_sql.entries(lines({"id": 1, "k": "x"}))
    assert (one.order, one.maybe_deleted) == (None, True)
    marked = Landed(tmp_path, "rows", schema=SCHEMA + ", gone BOOLEAN", delete_when="gone")
    assert marked.told(lines({"id": 1, "gone": True})) == [("d", (1,))]
    since = Landed(tmp_path, "rows", valid_from="d")
    assert since.told(lines({"id": 1, "d": "2024-05-01"}, {"id": 1})) == [
        ("u", (1, 19844), (None, 19844)),
        bad("valid_from is null"),
    ]
    events = Landed(tmp_path, "rows", contents="events", key=None, op_column="op")
    assert events.told(lines({"op": "c", "id": 1}, {"op": "d"})) == [
        ("c", ("7/landing/1.jsonl/1",), (1, None, None)),
        bad("a delete of an event without a key"),
    ]


@pytest.mark.parametrize(
    ("when", "gone"),
    [
        ("gone", [True, False, False]),
        ("d IS NOT NULL", [True, False, False]),
        ("k IN ('x', 'y') AND NOT gone", [False, True, False]),
        ("k <> 'x' OR id = 3", [False, True, True]),
        ("d IS NULL AND (gone OR k = 'y')", [False, True, False]),
        ("FALSE", [False, False, False]),
    ],
)
def test_rows_that_are_marked_as_deleted(tmp_path: Path, when: str, gone: list[bool]) -> None:
    landed = Landed(tmp_path, "rows", schema=SCHEMA + ", gone BOOLEAN", delete_when=when)
    rows = [{"id": 1, "k": "x", "d": "2024-05-01", "gone": True}, {"id": 2, "k": "y", "gone": "false"}, {"id": 3}]
    found = landed.entries(lines(*rows))
    assert [one.fate is Fate.DELETED for one in found] == gone
    assert not any(one.maybe_deleted for one in found)


EVENT = {"before": None, "after": {"id": 1, "k": "a", "d": 19844}, "op": "c", "source": {"sequence": '["5","6"]'}}


def test_debezium_in_its_three_shapes(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "debezium")
    row = ("c", (1,), ("a", 19844))
    exported = {"topic": "t", "key": {"schema": {}, "payload": {"id": 9}}, "value": {"schema": {}, "payload": EVENT}}
    flat = {**EVENT["after"], "__op": "c", "__source_lsn": 6, "__deleted": "false"}  # type: ignore[dict-item]
    found = landed.entries(
        lines(EVENT, {"schema": {}, "payload": EVENT}, exported, flat, {**flat, "__deleted": "true"})
    )
    assert [told(one) for one in found] == [row, row, ("c", (9,), ("a", 19844)), row, ("d", (1,))]
    assert [one.order for one in found] == [(5, 6)] * 3 + [(1, 6)] * 2


@pytest.mark.parametrize(
    ("source", "order"),
    [
        ({"sequence": '[null,"150"]', "lsn": 150}, (0, 150)),
        ({"lsn": 7}, (0, 7)),
        ({"file": "bin.000003", "pos": 40}, (3, 40)),
        ({"commit_scn": "9", "scn": "8"}, (9, 8)),
        ({"scn": "8"}, (8, 8)),
        ({"commit_lsn": "00000027:00000758:0003"}, ((0x27 << 32) + 0x758, 3)),
        ({}, (0, 0)),
    ],
)
def test_the_order_of_debezium(tmp_path: Path, source: dict[str, Any], order: tuple[int, int]) -> None:
    [one] = Landed(tmp_path, "debezium").entries(lines({**EVENT, "source": source}))
    assert one.order == order


def test_updates_of_debezium_that_change_the_key(tmp_path: Path) -> None:
    found = Landed(tmp_path, "debezium").told(
        lines(
            {"op": "U", "before": {"ID": 1}, "after": {"id": 2, "k": "a"}},
            {"op": "u", "before": {"id": 2}, "after": {"id": 2, "k": "a"}},
            {"op": "u", "before": {"k": "b"}, "after": {"id": 2, "k": "a"}},
        )
    )
    assert found == [("d", (1,)), *[("u", (2,), ("a", None))] * 3]


def test_half_of_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    texts = [r'{"id": 1, "k": "\ud83d"}', r'{"id": 1, "k": "\ud83d\ude00"}', r'{"id": 1, "k": "\\ud83d"}']
    found = Landed(tmp_path, "rows").told("\n".join(texts))
    assert [one[0] for one in found] == ["quarantined", "u", "u"]


def test_lines_of_debezium_that_are_no_rows(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "debezium", table="public.t")
    ours, other = {"schema": "public", "table": "t"}, {"schema": "other", "table": "t"}
    hole = {**EVENT, "after": {"id": 1, "k": "__debezium_unavailable_value"}}
    found = landed.entries(
        lines(
            {**EVENT, "source": ours},
            {**EVENT, "source": other},
            {**EVENT, "op": "d", "after": None, "before": {"id": 3}},
            {**EVENT, "op": "t", "after": None},
            {**EVENT, "op": "m"},
            {"status": "BEGIN", "id": "1"},
            {"topic": "t", "key": {"id": 1}, "value": None},
            "null",
            {"id": 1},
            {**EVENT, "op": "x"},
            {**EVENT, "after": None},
            {**EVENT, "after": "text"},
            hole,
        )
    )
    assert [told(one) for one in found] == [
        ("c", (1,), ("a", 19844)),
        ("ignored", "another table"),
        ("d", (3,)),
        ("t", ""),
        ("ignored", "logical message"),
        ("ignored", "transaction record"),
        ("ignored", "tombstone line"),
        ("ignored", "empty line"),
        bad("not a Debezium change event: it has no op"),
        bad("an unknown op"),
        bad("op c without a row in after"),
        bad("not a JSON object"),
        ("c", (1,), (None, None)),
    ]
    assert found[-1].holes == ("k",)


def test_maxwell(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "maxwell", table="shop.t")
    row = {"database": "shop", "table": "t", "type": "insert", "position": "m.000006:91", "data": {"id": 1, "k": "a"}}
    found = landed.entries(
        lines(
            row,
            {**row, "type": "update", "data": {"id": 2}, "old": {"id": 1}, "xoffset": 4},
            {**row, "type": "delete"},
            {**row, "type": "table-alter"},
            {**row, "table": "u"},
            {**row, "type": "odd"},
            {**row, "type": None},
            {**row, "data": None},
            {**row, "data": []},
            {**row, "position": None, "gtid": "a-b:17"},
        )
    )
    assert [told(one) for one in found] == [
        ("c", (1,), ("a", None)),
        ("d", (1,)),
        ("u", (2,), (None, None)),
        ("d", (1,)),
        ("ignored", "no row"),
        ("ignored", "another table"),
        bad("an unknown type"),
        bad("not a row of Maxwell: it has no type"),
        bad("type insert without data"),
        bad("not a JSON object"),
        ("c", (1,), ("a", None)),
    ]
    assert [found[number].order for number in (0, 1, 2, -1)] == [(6, 91, 0), (6, 91, 4), (6, 91, 4), (0, 17, 0)]


def test_csv(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "csv", csv={"null_text": "\\N"})
    content = '\ufeffID, d ,"k",other,k\n1,2024-05-01,"a ""b"", c\nd",x,y\n\n2,\\N,"",,\n'
    content += "3,20240501,a,,\n4,2024-05,a,,\n5,,a\n"
    assert landed.told(content, "1.csv") == [
        ("u", (1,), ('a "b", c\nd', 19844)),
        ("u", (2,), ("", None)),
        bad("column d is not DATE"),
        bad("column d is not DATE"),
        bad("not a row of 5 fields"),
    ]
    assert landed.told('id,k,d\n1,a,\n2,"b,\n3,c,\n', "2.csv") == [
        ("u", (1,), ("a", None)),
        bad("a quote is not closed"),
    ]
    assert landed.told(b"id,k,d\r\n1,\xff,\r\n2,b,\r\n", "3.csv") == [bad("not UTF-8"), ("u", (2,), ("b", None))]
    with pytest.raises(NotReadError, match="CR LF"):
        landed.told("id,k,d\r\n1,a,\n", "4.csv")
    quoted = landed.told(b'id,k,"e\n",d\r\n1,"a\nb",,\r\n2,b,,2024-05-01\r\n', "6.csv")
    assert quoted == [("u", (1,), ("a\nb", None)), ("u", (2,), ("b", 19844))]
    bare = Landed(tmp_path, "csv", csv={"header": False, "delimiter": ";"}, op_column="op")
    assert bare.told('\ufeff"u";"1";"x;y";\nD;2;;\n', "5.csv") == [("u", (1,), ("x;y", None)), ("d", (2,))]


def test_dms(tmp_path: Path) -> None:
    landed = Landed(tmp_path, "dms")
    changes = landed.entries("I,1,a,2024-05-01\nu,1,b,\nD,1,,\nX,1,,\n", "20141029-113401000.csv")
    assert [told(one) for one in changes] == [
        ("i", (1,), ("a", 19844)),
        ("u", (1,), ("b", None)),
        ("d", (1,)),
        bad("an unknown operation"),
    ]
    assert {one.order for one in changes if one.key} == {(20141029113401000,)}
    full = landed.entries("1,a,\n", "LOAD00000001.csv")
    assert [(told(one), one.order) for one in full] == [(("u", (1,), ("a", None)), (0,))]
    assert landed.told("I,1,a\n", "20141029-113401001.csv") == [bad("not a row of 4 fields")]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "OP": ["u", "delete", "u"],
            "Id": pa.array([1, 2, 3], pa.int64()),
            "k": pa.array([0.5, None, 1.0], pa.float32()),
            "d": pa.array([19844, None, 3], pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "made.parquet")
    content = (tmp_path / "made.parquet").read_bytes()
    landed = Landed(tmp_path, "parquet", op_column="op")
    assert landed.told(content, "1.parquet") == [("u", (1,), ("0.5", 19844)), ("d", (2,)), ("u", (3,), ("1", 3))]
    assert landed.told(content[:-9], "2.parquet")[0][1].startswith("unreadable from byte 0")


def test_versions_of_a_delta_table(tmp_path: Path) -> None:
    source = str(tmp_path / "t")
    fed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(source, pa.table({"id": [1, 2], "k": ["a", "b"]}), configuration=fed)
    DeltaTable(source).update(predicate="id = 1", updates={"k": "'c'"})
    DeltaTable(source).delete("id = 2")
    reader = reader_of(InputColumns(Landed(tmp_path, "delta").side), 1 << 20)

    def of(versions: str) -> list[Any]:
        path = f"{source}@{versions}"
        return sorted((one.order, told(one)) for one in reader.entries(FilePlace(path, path, path, 0, 0)))

    assert of("..0") == [
        ((0, 0), ("t", "snapshot")),
        ((0, 1), ("r", (1,), ("a", None))),
        ((0, 1), ("r", (2,), ("b", None))),
    ]
    assert of("1..2") == [((1, 0), ("d", (1,))), ((1, 1), ("u", (1,), ("c", None))), ((2, 0), ("d", (2,)))]
    with pytest.raises(NotReadError):
        of("..9")


def test_records_of_many_keys_are_kept_in_files() -> None:
    added = [((7, number % 5), ANY if number == 9 else Written(number)) for number in range(20)]
    found = []
    for size in (0, 1 << 27):
        with Buckets(size) as buckets:
            for key, value in added:
                buckets.add(key, value)
            found.append(dict(buckets.groups()))
    assert found[0] == found[1]
    assert found[1][7, 4][1] is ANY
    assert [len(values) for values in found[0].values()] == [4] * 5
