"""Case files and the workflow table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import UsageError
from fk_pipeline.trace import reference
from fk_pipeline.trace.cases import load_cases, parse_case
from fk_pipeline.trace.workflow import columns, rows
from tests.kafka_cases import lagging_joins

CASE = {
    "family": "fk-join",
    "name": "one",
    "join": "inner",
    "events": [
        {"side": "right", "key": "x", "value": {"name": "X"}, "ts": 1},
        {"side": "left", "key": "k", "value": {"fk": "x", "v": "v1"}, "ts": 2},
        {"side": "left", "key": "k", "value": None, "ts": 3},
        {"side": "left", "key": None, "value": None, "ts": 4},
    ],
}


def write(folder: Path, name: str, value: Any) -> Path:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def test_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path, f"{name}.json", CASE | {"name": name})
    one = write(tmp_path, "c.txt", CASE)
    assert [case.name for case in load_cases([one, tmp_path])] == ["one", "a", "b"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not JSON"),
        ([], "no case"),
        (CASE | {"family": "table-tables"}, "family"),
        (CASE | {"family": "table-table"}, "value"),
        (CASE | {"join": "outer"}, "join"),
        (CASE | {"left_versiond": True}, "left_versiond"),
        (CASE | {"events": [{"side": "left", "key": "k", "value": {"v": 1}, "ts": 1}]}, "a left value has a field fk"),
        (CASE | {"events": [{"side": "left", "key": "k", "value": {"fk": 7}, "ts": 1}]}, "a text or null"),
        ({"family": "fk-lag", "name": "l", "join": "inner", "ops": [{"op": "deliver", "from": "home"}]}, "from"),
    ],
)
def test_what_is_no_case_is_refused_with_file_and_place(tmp_path: Path, value: Any, message: str) -> None:
    file = write(tmp_path, "bad.json", value)
    with pytest.raises(UsageError, match=message) as caught:
        load_cases([file])
    assert caught.value.where == str(file)


def test_a_missing_file_an_empty_folder_and_two_of_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_cases([tmp_path / "none.json"])
    with pytest.raises(UsageError, match=r"no \.json file"):
        load_cases([tmp_path])
    same = [write(tmp_path, name, CASE) for name in ("a.json", "b.json")]
    with pytest.raises(UsageError, match="two cases are called 'one'"):
        load_cases(same)


def test_the_workflow_table_of_a_case() -> None:
    case = parse_case(CASE)
    assert rows(case, reference.trace(case)) == [
        ["1  right x = X @1", "", "", "", ""],
        [
            "2  left k = v1|x @2",
            "k to x: PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE @2",
            "k: X @2",
            "k = (v1|x, X) @2",
            "",
        ],
        ["3  left k = deleted @3", "k to x: DELETE_KEY_AND_PROPAGATE @3", "k: nothing @3", "k = deleted @3", ""],
        ["4  left null = deleted @4", "", "", "", "1"],
    ]


def test_the_workflow_table_of_a_case_with_waiting_messages() -> None:
    case = next(case for case in lagging_joins() if case.name == "stale-A-inner")
    table = rows(case, reference.trace(case))
    assert len(table) == len(case.ops)
    assert table[6] == ["7  (deliver a response)", "", "", "", "1"]


def test_the_workflow_table_of_a_join_by_key_has_no_messages() -> None:
    case = parse_case(
        {
            "family": "table-table",
            "name": "by key",
            "join": "outer",
            "events": [
                {"side": "right", "key": "k", "value": "r", "ts": 1},
                {"side": "left", "key": "k", "value": "l", "ts": 2},
                {"side": "right", "key": None, "value": "r", "ts": 3},
                {"side": "right", "key": "k", "value": None, "ts": 4},
            ],
        }
    )
    assert columns(case) == ("event", "result", "dropped")
    assert rows(case, reference.trace(case)) == [
        ["1  right k = r @1", "k = (-, r) @1", ""],
        ["2  left k = l @2", "k = (l, r) @2", ""],
        ["3  right null = r @3", "", "1"],
        ["4  right k = deleted @4", "k = (l, -) @4", ""],
    ]
