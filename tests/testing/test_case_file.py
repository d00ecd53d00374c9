"""Cases as they are read from YAML, and what is said of those that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import CaseFileError, StateError, UsageError
from fk_pipeline.identity import Side
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.paths import inline_reference
from fk_pipeline.spec.project import pipeline_files
from fk_pipeline.testing import copies
from fk_pipeline.testing.case_file import selected_cases
from fk_pipeline.testing.cases import GivenRow, PipelineCase
from fk_pipeline.testing.copies import copied, land
from fk_pipeline.testing.inputs import inputs_of_cases
from tests.testing.conftest import ORDERS

RIGHT = """\
- name: a late customer
  given:
    - left:
        - {order_id: 1, customer: ADA, amount: 12.50, placed: 2026-01-02T03:04:05}
        - {Order_ID: 007, customer: null}
    - right: [{customer: ada, name: Ada, since: 2026-01-02}]
      left: [{delete: {order_id: 7}}]
  expect:
    - {order_id: 1, name: Ada}
- name: by steps
  steps:
    - given: {left: [{order_id: 1}]}
    - given: {left: []}
      expect_some: []
      expect_quarantined: 2
"""


@pytest.fixture
def read(orders: Callable[..., Path]) -> Callable[..., list[PipelineCase]]:
    """Returns a function that reads a file of cases."""
    return lambda text, select="": selected_cases(load_spec(orders(text)), (), select)


def test_values_are_texts_as_they_are_written(read: Any) -> None:
    late, steps = read(RIGHT)
    [step] = late.steps
    left = step.batches[0]["left"]
    assert left[0].values == {"order_id": "1", "customer": "ADA", "amount": "12.50", "placed": "2026-01-02T03:04:05"}
    assert left[1] == GivenRow({"order_id": "007", "customer": None})
    assert step.batches[1]["left"] == (GivenRow({"order_id": "7"}, deletes=True),)
    assert step.expected.rows == ({"order_id": "1", "name": "Ada"},)
    assert [step.expected is None for step in steps.steps] == [True, False]
    assert (steps.steps[1].expected.only_some, steps.steps[1].expected.quarantined) == (True, 2)
    assert [case.name for case in read(RIGHT, "LATE")] == ["a late customer"]


def test_numbers_that_are_none_and_booleans_land_as_such(read: Any, tmp_path: Path) -> None:
    [case] = read("- {name: a, given: {left: [{amount: .nan, customer: [-.inf, .Inf, &t true, *t, 1e5]}]}, expect: []}")
    inputs = inputs_of_cases(load_spec(tmp_path / "orders.yaml"))
    copied(load_spec(tmp_path / "orders.yaml"), inputs, tmp_path / "copy")
    land(inputs, tmp_path / "copy", 1, case.batches[0])
    line = (tmp_path / "copy/landing/left/00000001.jsonl").read_text()
    assert '"customer": ["-Infinity", "Infinity", true, true, 1e5], "amount": "NaN"' in line


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("- {name: a, given: [{left: [{order: 1}]}], expect: []}", 1, "input left has no column 'order'; did you mean"),
        ("- name: a\n  given:\n  - lef: []\n  expect: []", 3, "there is no input 'lef'; did you mean 'left'?"),
        ("- name: a\n  given: [{left: []}]\n  expect:\n  - {nam: x}", 4, "has no column 'nam'; did you mean 'name'?"),
        ("- name: a\n  given: [{left: []}]", 1, "case 'a': expects nothing; write expect, expect_some"),
        ("- name: a\n  given: [{left: []}]\n  expected: []", 3, "a case has no key 'expected'; did you mean 'expect'?"),
        ("- name: a\n  given: [{left: 3}]\n  expect: []", 2, "left: a list, with '- ' before each of its"),
        ("- name: a\n  expect: []", 1, "case 'a': given is missing"),
        ("- given: [{left: []}]\n  expect: []", 1, "a case has a name"),
        ("- name: a\n  now: 2026-01-01\n  given: [{left: []}]\n  expect: []", 2, "the pipeline has none"),
        ("- name: a\n  given: [{left: [{delete: {customer: x}}]}]\n  expect: []", 2, "order_id is missing"),
        ("- name: a\n  given: [{left: [{delete: 1}]}]\n  expect: []", 2, "a delete is {delete: {order_id: ...}}"),
        ("- name: a\n  given: [{left: []}]\n  expect: []\n  expect_some: []", 4, "write one of the two"),
        ("- name: a\n  given: [{left: []}]\n  expect_quarantined: no", 3, "a number of records, not 'no'"),
        ("- name: a\n  steps: [{given: {left: []}}]", 1, "expects nothing after its last step"),
        ("- name: a\n  given: []\n  steps: [{given: {left: []}, expect: []}]", 1, "each step has its own"),
        ("- &a {name: a, given: {left: []}, expect: []}\n- *a", 1, "two cases are called 'a'"),
        ("- name: a\n  given: {left: [{order_id: 1,\n   Order_ID: 2}]}\n  expect: []", 3, "column 'order_id' twice"),
        ("- name: a\n  given: [{left: [{amount: 1_000}]}]\n  expect: []", 2, "write 1_000 as 1000, -5 or 0.5"),
        ("- name: a\n  given: [{left: []}]\n  expect: [{name: [{x: 0x10}]}]", 3, "column 'name': write 0x10"),
        ("- name: a\n  given: [{left: []}]\n  expect: [{amount: +5}, {amount: .5}]", 3, "write .5 as 1000, -5 or 0.5"),
        ("- name: a\n  given: [{left: [{customer: !!binary eA==}]}]\n  expect: []", 2, "a value is null, true, false"),
        ("- name: a\n  given: [{left: []}]\n  expect:\n  - {name: !!set {x}}", 4, "a value is null, true, false"),
        ("- name: a\n  given: [{left: [{customer: !mine x}]}]\n  expect: []", 2, "a value is null, true, false"),
        ("- name: a\n  given: [{left: [{customer: !!bool x}]}]\n  expect: []", 2, "not valid YAML near 'x'"),
        ("name: a\ngiven: []", 1, "a file of cases is a YAML list"),
        ("- name: a\n  given: [", 2, "not valid YAML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(read: Any, text: str, line: int, says: str) -> None:
    with pytest.raises(CaseFileError) as error:
        read(text)
    assert f"orders.tests.yaml:{line}: " in str(error.value)
    assert says in str(error.value)


def test_all_mistakes_are_reported_at_once(orders: Callable[..., Path]) -> None:
    file = orders("- {name: a, given: [{left: [{id: 1}]}], expect: [{nme: x}]}\n- {name: b, given: {left: []}}\n")
    done = CliRunner().invoke(app, ["test", str(file)])
    assert isinstance(done.exception, CaseFileError)
    assert done.exception.exit_code == 2
    assert str(done.exception).count("orders.tests.yaml:") == 3


def test_no_file_and_no_case_of_a_name_are_wrong_usage(orders: Callable[..., Path], read: Any) -> None:
    with pytest.raises(
        UsageError, match=r"there is no such file of cases\n  Fix: write a list of cases into .*tests\.yaml"
    ):
        selected_cases(load_spec(orders()))
    with pytest.raises(
        UsageError, match="no case has 'early' in its name\n  Fix: cases are 'a late customer', 'by steps'"
    ):
        read(RIGHT, "early")


def test_a_file_of_cases_is_no_pipeline(orders: Callable[..., Path]) -> None:
    file = orders("not: [valid")
    assert pipeline_files([file.parent]) == [file]


def test_a_copy_reads_plain_rows_in_a_folder_of_its_own(orders: Callable[..., Path], tmp_path: Path) -> None:
    spec = load_spec(orders(RIGHT))
    inputs, folder = inputs_of_cases(spec), tmp_path / "copy"
    folder.mkdir()
    copy = copied(spec, inputs, folder)
    assert copy.home == f"{folder}/warehouse/orders"
    assert [copy.side(side).format for side in copy.sides] == ["rows", "rows"]
    assert [copy.side(side).schema_ for side in copy.sides] == [spec.side(side).schema_ for side in spec.sides]
    assert copy.outputs == spec.outputs
    assert not copy.has_sensitive
    land(inputs, folder, 3, selected_cases(spec)[0].batches[1])
    [line] = (folder / "landing/left/00000003.jsonl").read_text().splitlines()
    assert json.loads(line) == {"order_id": 7, "customer": None, "amount": None, "placed": None, "_operation": "d"}
    assert (folder / "landing/right/00000003.jsonl").is_file()


CHAINED = """\
name: chained
kind: table
input: {pipeline: orders.yaml}
"""


def test_the_result_of_a_pipeline_is_given_by_rows(orders: Callable[..., Path], tmp_path: Path) -> None:
    file = tmp_path / "chained.yaml"
    file.write_text(CHAINED)
    (tmp_path / "chained.tests.yaml").write_text(
        "- {name: a, given: {input: [{order_id: 1}]}, expect: [{order_id: 1}]}"
    )
    orders()
    spec = load_spec(file)
    [case] = selected_cases(spec)
    (tmp_path / "copy").mkdir()
    copy = copied(spec, inputs_of_cases(spec), tmp_path / "copy")
    assert (copy.side(spec.sides[0]).format, copy.side(spec.sides[0]).key) == ("rows", ("order_id",))
    assert case.batches[0]["input"][0].values == {"order_id": "1"}


def test_the_key_of_a_result_that_may_be_null_is_made(orders: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "pairs.yaml").write_text(SELF.replace("inner", "left"))
    cases = "- {name: a, given: {input: [{a: 1, b: 2}, {delete: {a: 3, b: null}}]}, expect: []}"
    file = orders(cases, "name: t\nkind: table\ninput: {pipeline: pairs.yaml}\n")
    spec = load_spec(file)
    inputs = inputs_of_cases(spec)
    (tmp_path / "copy").mkdir()
    assert copied(spec, inputs, tmp_path / "copy").side(spec.sides[0]).key == ("result_key",)
    land(inputs, tmp_path / "copy", 1, selected_cases(spec)[0].batches[0])
    lines = [*map(json.loads, (tmp_path / "copy/landing/input/00000001.jsonl").read_text().splitlines())]
    assert [line["result_key"] for line in lines] == ['{"a": 1, "b": 2}', '{"a": 3, "b": null}']


SELF = """\
name: pairs
kind: window
join: inner
left: &clicks
  {path: c, format: debezium, schema: "id INT, at TIMESTAMP, who STRING", key: id, on: who, time: at}
right: *clicks
within: {before: -1 seconds, after: 1 hour}
select: [left.id AS a, right.id AS b]
"""


def test_a_stream_that_is_joined_to_itself_lands_once(orders: Callable[..., Path], tmp_path: Path) -> None:
    spec = load_spec(orders(pipeline=SELF))
    (tmp_path / "copy").mkdir()
    copy: Any = copied(spec, inputs_of_cases(spec), tmp_path / "copy")
    assert copy.single_store
    orders("- {name: a, given: {right: []}, expect: []}", SELF)
    with pytest.raises(CaseFileError, match="'right' is the same stream as 'left'; give its rows there, once"):
        selected_cases(spec)


QUERY = """\
name: recent
kind: query
inputs:
  o: {path: o, format: maxwell, schema: "id INT, day DATE", key: id}
  unread: {path: u, format: rows, schema: "id INT", key: id}
  today: {clock: 1 day}
query: recent.sql
register: s.recent
"""


def test_the_copy_of_a_query_has_its_text_its_clock_and_the_inputs_that_it_reads(
    orders: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "recent.sql").write_text("SELECT o.id FROM o, today WHERE o.day > today.day - INTERVAL 7 DAYS")
    file = orders("- {name: a, now: 2026-05-01, given: {o: [{id: 1, day: 2026-04-30}]}, expect: [{id: 1}]}", QUERY)
    spec = load_spec(file)
    [case] = selected_cases(spec)
    assert case.steps[0].now == "2026-05-01"
    (tmp_path / "copy").mkdir()
    copy: Any = copied(spec, inputs_of_cases(spec), tmp_path / "copy")
    assert (copy.query, copy.register_) == (spec.model_dump()["query"], None)
    assert [*map(str, copy.sides)] == ["o", "today"]


def test_a_clock_is_set_in_the_first_step(orders: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "recent.sql").write_text("SELECT o.id FROM o, today WHERE o.day > today.day - INTERVAL 7 DAYS")
    steps = "- name: a\n  steps:\n  - {given: {o: []}%s}\n  - {given: {o: []}, expect: []}\n"
    [case] = selected_cases(load_spec(orders(steps % ", now: 2026-05-01", QUERY)))
    assert case.times == ("2026-05-01", "2026-05-01")
    for cases in (steps % "", "- {name: a, given: {o: []}, expect: []}"):
        with pytest.raises(CaseFileError, match=r"tests\.yaml:1: .*what clock 'today' shows; write 'now: 2026-05-01'"):
            selected_cases(load_spec(orders(cases, QUERY)))


def test_the_time_of_a_commit_is_a_column_of_the_rows(orders: Callable[..., Path], tmp_path: Path) -> None:
    pipeline = (
        "name: p\njoin: left\nas_of: at\n"
        "left: {path: l, schema: 'id INT, k STRING, at TIMESTAMP', key: id, foreign_key: k}\n"
        "right: {path: r, schema: 'k STRING, v INT', key: k, valid_from: committed_at}\nselect: [id, v]\n"
    )
    spec = load_spec(orders("- {name: a, given: {right: [{k: x, committed_at: 2026-01-01}]}, expect: []}", pipeline))
    assert selected_cases(spec)[0].batches[0]["right"][0].values["committed_at"] == "2026-01-01"
    (tmp_path / "copy").mkdir()
    assert copied(spec, inputs_of_cases(spec), tmp_path / "copy").side(spec.sides[1]).valid_from == "committed_at"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ('schema: "id INT, day DATE, n INT", key: id, sequence_by: n', {"id": 1, "day": None, "n": 2}),
        ('schema: "id INT, day DATE, n INT", key: id, where: n > 1', {"id": 1, "day": None, "n": 2}),
        ('schema: "id INT, day DATE, n INT", key: id, delete_when: n < 0', {"id": 1, "day": None, "n": 2}),
        ('schema: "id INT, day DATE", key: id, contents: snapshot', {"id": 1, "day": None}),
        ('schema: "id INT, day DATE", contents: events', {"id": 1, "day": None}),
    ],
)
def test_an_inline_input_is_given_as_the_file_has_it(
    orders: Callable[..., Path], tmp_path: Path, given: str, line: dict[str, Any]
) -> None:
    row = {name: value for name, value in line.items() if value is not None}
    query = f"name: q\nkind: query\nquery: SELECT id FROM o\ninputs:\n  o: {{path: o, format: rows, {given}}}\n"
    spec = load_spec(orders(f"- {{name: a, given: {{o: [{json.dumps(row)}]}}, expect: [{{id: 1}}]}}", query))
    inputs, folder = inputs_of_cases(spec), tmp_path / "copy"
    folder.mkdir()
    copy = load_spec(inline_reference(copied(spec, inputs, folder).file, "o")).side(Side.INPUT)
    land(inputs, folder, 1, selected_cases(spec)[0].batches[0])
    operation = {"_operation": "u"} if copy.op_column else {}
    assert (copy.op_column is not None) is ("contents" not in given)
    assert json.loads((folder / "landing/o/00000001.jsonl").read_text()) == {**line, **operation}


@pytest.mark.parametrize(("key", "value"), [("warehouse", "s3://bucket/warehouse"), ("register", "shop.orders")])
def test_a_copy_that_would_use_something_of_the_user_is_refused(
    orders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    spec = load_spec(orders(pipeline=f"{ORDERS}{key}: {value}\n"))
    inputs, folder = inputs_of_cases(spec), tmp_path / "copy"
    folder.mkdir()
    copy = copied(spec, inputs, folder)
    assert (copy.register_, copy.home) == (None, f"{folder}/warehouse/orders")
    monkeypatch.setattr(copies, "_LEFT_OUT", ())
    with pytest.raises(StateError, match=f"a case would use {value}"):
        copied(spec, inputs, folder)


def test_an_inline_input_of_a_copy_that_would_use_something_of_the_user_is_refused(
    orders: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = "name: q\nkind: query\nquery: SELECT id FROM o\ninputs: {o: {path: o, schema: id INT, key: id}}\n"
    spec = load_spec(orders(pipeline=inline))
    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(copies, "_source", lambda given, _: {**given, "path": str(tmp_path / "o")})
    with pytest.raises(StateError, match=f"a case would use {tmp_path}/o\n"):
        copied(spec, inputs_of_cases(spec), tmp_path / "copy")
