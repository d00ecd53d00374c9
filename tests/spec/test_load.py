"""The pipeline file: what it means, and that every mistake names file, line, what is wrong and what would be right."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from fk_pipeline.engine.fingerprints import fingerprints
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.layout import declared_layout
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.described import description_of_output
from fk_pipeline.spec.sql import Expression, parse_expression

GOOD = """\
name: flight_planes
join: left
left:
  path: landing/flights
  format: debezium
  schema: "id BIGINT, carrier STRING, tailnum STRING, dep_delay INT, extra MAP<STRING, STRUCT<a: INT>>"
  key: [id]
  foreign_key: tailnum
right:
  path: landing/planes
  schema: "tailnum STRING, year INT, seats INT"
  key: tailnum
select:
  - id
  - left.tailnum AS tail
  - seats AS plane_seats
  - extra['x'].a + dep_delay AS f
"""


def load(folder: Path, text: str) -> PipelineSpec:
    file = folder / "p.yaml"
    file.write_text(text)
    return load_spec(file)


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        load(folder, text)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{folder}/", "")


def test_a_pipeline_file_is_read(tmp_path: Path) -> None:
    spec = load(tmp_path, GOOD)
    assert [o.name for o in spec.outputs] == ["id", "tail", "plane_seats", "f"]
    assert [c.name for c in spec.selected[Side.LEFT]] == ["id", "tailnum", "dep_delay", "extra"]
    assert [c.name for c in spec.selected[Side.RIGHT]] == ["seats"]
    assert spec.home == f"{tmp_path}/warehouse/flight_planes"
    assert spec.location("s3a://bucket/x") == "s3a://bucket/x"


def test_a_field_is_not_declared_as_its_column_is(tmp_path: Path) -> None:
    text = GOOD.replace("seats INT", "seats STRUCT<n: INT>").replace(
        "seats AS plane_seats", "right.seats.n AS plane_seats"
    )
    spec = load(tmp_path, f"{text}  - seats AS whole\n")
    types = dict(declared_layout(spec)["resolved_join"].columns)
    assert [types[name] for name in ("tail", "plane_seats", "whole")] == ["STRING", "expression", "STRUCT<n: INT>"]


def test_a_strategy_is_of_a_stage_that_there_is(tmp_path: Path) -> None:
    spec = load(tmp_path, GOOD + "settings:\n  strategy: {responses: full}\n")
    assert [spec.settings.strategy_of(stage) for stage in ("responses", "resolved_join")] == ["full", "auto"]
    assert "settings.strategy.response: there is no stage 'response'; stages are left_changelog, " in error_of(
        tmp_path, GOOD + "settings:\n  strategy: {response: full}\n"
    )


def test_statistics_are_of_columns_of_the_result_that_are_not_sensitive(tmp_path: Path) -> None:
    named = "settings:\n  statistics_columns: [plane_seats, {}]\n"
    spec = load(tmp_path, GOOD + named.format("f"))
    assert spec.settings.statistics_columns == ("plane_seats", "f")
    unknown = "settings.statistics_columns: column 'seats' is not in the result; it has id, tail, plane_seats, f"
    assert error_of(tmp_path, GOOD + named.format("seats")) == f"p.yaml:19: {unknown}"
    secret = GOOD.replace("  key: tailnum\n", "  key: tailnum\n  sensitive: seats\n") + named.format("id")
    assert "settings.statistics_columns: column 'plane_seats' is sensitive" in error_of(tmp_path, secret)


def test_without_a_select_everything_is_selected_and_clashes_get_a_prefix(tmp_path: Path) -> None:
    spec = load(tmp_path, GOOD.split("select:", maxsplit=1)[0])
    assert [o.name for o in spec.outputs] == [
        "id", "carrier", "tailnum", "dep_delay", "extra", "right_tailnum", "year", "seats",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["comment", "cache", "show", "set", "describe"])
def test_a_column_may_be_called_as_a_statement_begins(name: str) -> None:
    assert parse_expression(name) == Expression(name, name, ((name,),), plain=True)
    assert parse_expression(f"{name} AS other").name == "other"


def test_composite_keys_and_foreign_keys_are_lists(tmp_path: Path) -> None:
    text = GOOD.replace("\n  key: tailnum", "\n  key: [tailnum, year]").replace(
        "foreign_key: tailnum", "foreign_key: [upper(tailnum), dep_delay]"
    )
    spec = load(tmp_path, text)
    assert spec.left.foreign_key == ("upper(tailnum)", "dep_delay")
    assert [c.name for c in spec.right.key_columns] == ["tailnum", "year"]


SAID = """\
description: |
  One row per flight.
owners: team:ops
tags: {domain: air, acme.com/tier: gold}
group: air/joins
meta: {sla: 6, since: 2024-02-03, contract: {version: 1.5, open: [true, null]}}
descriptions: {PLANE_SEATS: how many may sit}
"""


def test_what_a_file_says_of_the_data_is_for_people_only(tmp_path: Path) -> None:
    plain, right = load(tmp_path, GOOD), "right:\n  descriptions: {SEATS: seats of the plane, tailnum: on its tail}"
    spec = load(tmp_path, SAID + GOOD.replace("right:", right))
    assert spec.description == "One row per flight.\n"
    assert (spec.owners, spec.group) == (("team:ops",), "air/joins")
    assert spec.tags == {"domain": "air", "acme.com/tier": "gold"}
    contract = {"version": 1.5, "open": [True, None]}
    assert json.dumps(spec.meta) == json.dumps({"sla": 6, "since": "2024-02-03", "contract": contract})
    assert spec.descriptions == {"plane_seats": "how many may sit"}
    assert spec.right.descriptions == {"seats": "seats of the plane", "tailnum": "on its tail"}
    assert fingerprints(spec) == fingerprints(plain)


def test_a_column_that_is_taken_as_it_is_means_what_its_input_says(tmp_path: Path) -> None:
    right = "right:\n  descriptions: {seats: seats of the plane}"
    left = "left:\n  descriptions: {dep_delay: minutes, tailnum: on its tail}"
    spec = load(tmp_path, GOOD.replace("right:", right).replace("left:\n", f"{left}\n", 1))
    told = {output.name: description_of_output(spec, output) for output in spec.outputs}
    assert told == {"id": None, "tail": "on its tail", "plane_seats": "seats of the plane", "f": None}


ROWS = "  key: tailnum\n  format: rows\n  "
MISTAKES = [
    ("join: left", "join: left\nowners: [team:a, bob]", "p.yaml:3: owners: 'bob' is no owner; it must be an e-mail"),
    ("join: left", "join: left\ntags: {a: b c}", "p.yaml:3: tags.a: 'b c' is no value of a tag; it must have at most"),
    ("join: left", "join: left\ntags:\n  dagster/a: b", "p.yaml:4: tags.dagster/a: no name of a tag; it must have 1"),
    ("join: left", "join: left\ntags: {a: 1}", "p.yaml:3: tags.a: Input should be a valid string, not 1"),
    ("join: left", "join: left\ngroup: a-b", "p.yaml:3: group: 'a-b' is no group; it must have letters, digits and _"),
    ("join: left", "join: left\nmeta: {path: b}", "p.yaml:3: meta.path: the assets have 'path' anyway"),
    (
        "join: left",
        "join: left\ndescriptions: {id: a, tailnum: b}",
        "p.yaml:3: descriptions.tailnum: column 'tailnum' is not in the result; it has id, tail, plane_seats, f",
    ),
    (
        "key: [id]",
        "key: [id]\n  descriptions: {seats: a}",
        "p.yaml:8: left.descriptions.seats: column 'seats' is not in the schema; it has id, carrier, tailnum",
    ),
    ("key: [id]", "key: [idx]", "p.yaml:7: left.key: key column 'idx' is not in the schema; it has id, carrier"),
    ("key: [id]", "kee: [id]", "p.yaml:7: unknown key 'left.kee'; did you mean 'key'?"),
    ("key: [id]", "kee: [id]", "p.yaml:3: 'left.key' is missing"),
    ("key: [id]", "key: [extra]", "p.yaml:7: left.key: key column 'extra' has type MAP<STRING, STRUCT<a: INT>>"),
    (
        "key: [id]",
        "key: [id]\n  sensitive: [carrier, name]",
        "p.yaml:8: left.sensitive: sensitive column 'name' is not in the schema; it has id, carrier",
    ),
    ("key: [id]", "key: [id, ID]", "p.yaml:7: left.key: a column stands twice in the key"),
    ("join: left", "join: right", "p.yaml:2: join: 'right' is not possible; it must be 'inner', 'left' or 'outer'"),
    ("name: flight_planes", "name: Flight", "p.yaml:1: name: 'Flight' must start with a letter a-z"),
    ("format: debezium", "format: avro", "p.yaml:5: left.format: 'avro' is not a format that this version reads"),
    ("carrier STRING", "carrier STRIN(G", "p.yaml:6: left.schema: not a Spark column list"),
    ("carrier STRING", "ID STRING", "p.yaml:6: left.schema: column 'ID' is declared twice"),
    ("carrier STRING", "_fk_x STRING", "p.yaml:6: left.schema: column '_fk_x': names that start with _fk_"),
    ("carrier STRING", "`a b` STRING", "p.yaml:6: left.schema: column 'a b': Delta cannot store a name with"),
    ("carrier STRING", "right STRING", "p.yaml:6: left.schema: column 'right': 'left' and 'right' name the sides"),
    ("seats INT", "seats VARIANT", "p.yaml:11: right.schema: column 'seats' has type VARIANT, which is not supported"),
    ("seats INT", "seats STRUCT<at: TIME>", "p.yaml:11: right.schema: column 'seats' has type TIME, which is not"),
    ("foreign_key: tailnum", "foreign_key: tail", "p.yaml:8: left.foreign_key: 'tail' reads column 'tail'"),
    (
        "foreign_key: tailnum",
        "foreign_key: dep_delay",
        "INT, the right key 'tailnum' is STRING; make the types",
    ),
    (
        "foreign_key: tailnum",
        "foreign_key: [tailnum, id]",
        "p.yaml:8: left.foreign_key: foreign_key has 2",
    ),
    ("foreign_key: tailnum", "foreign_key: uuid()", "is not deterministic"),
    ("- id", "- rand() AS id", "p.yaml:14: select: 'rand() AS id': RAND() is not deterministic"),
    ("- id", "- localtimestamp() AS id", "is not deterministic"),
    ("- id", "- unix_timestamp() AS id", "is not deterministic"),
    ("- id", "- timestamp'now' AS t", "p.yaml:14: select: \"timestamp'now' AS t\": 'now' may become the day on which"),
    ("- id", "- input_file_block_start() AS b", "p.yaml:14: select: 'input_file_block_start() AS b': INPUT_FILE_BLOCK"),
    ("- id", "- aes_encrypt(carrier, 'k') AS e", "is not deterministic"),
    ("- id", "- identifier('id') AS e", "is not deterministic"),
    ("- id", "- _metadata.file_path AS f", "column '_metadata' is in neither schema"),
    ("- id", "- \"'${env:HOME}' AS e\"", "p.yaml:14: select: \"'${env:HOME}' AS e\": ${...} would be replaced"),
    (
        "foreign_key: tailnum",
        "foreign_key: \"r'${env:HOME}'\"",
        "p.yaml:8: left.foreign_key: \"r'${env:HOME}'\"",
    ),
    (
        "key: [id]",
        "key: [id]\n  sequence_by: to_date('today')",
        "p.yaml:8: left.sequence_by: \"to_date('today')\"",
    ),
    ("- id", "- explode(array(id)) AS id", "makes several rows of one"),
    ("key: [id]", "key: [id]\n  batch_by: '('", "p.yaml:8: left.batch_by: '(' is no regular expression"),
    ("- id", "- now() AS id", "p.yaml:14: select: 'now() AS id': NOW() is not deterministic"),
    ("- id", "- tailnum", "p.yaml:14: select: 'tailnum': column 'tailnum' is on both sides; write left.tailnum or"),
    ("- id", "- right.id", "p.yaml:14: select: 'right.id': 'right.id' is not a column of the right schema"),
    ("- id", "- sum(seats) AS s", "looks at several rows; an expression sees one row"),
    (
        "- id",
        "- upper(carrier)",
        "'upper(carrier)' needs a name: write 'upper(carrier) AS some_name'",
    ),
    ("- id", "- plane_seats", "p.yaml:14: select: 'plane_seats': column 'plane_seats' is in neither schema"),
    ("- id", "- carrier AS PLANE_SEATS", "p.yaml:16: select: two columns of the result are called 'plane_seats'"),
    ("- id", "- id AS _fk_id", "p.yaml:14: select: '_fk_id': names that start with _fk_"),
    ("- id", "- '*'", "'*' is not possible here"),
    ("seats INT", "seats MONEY", "column 'seats' has type MONEY, which Spark does not know; DECIMAL(19,4) takes"),
    ("seats INT", "seats ARRAY<JSONB>", "column 'seats' has type JSONB, which Spark does not know; STRING takes its"),
    ("seats INT", "seats INTT", "column 'seats' has type INTT, which Spark does not know; did you mean 'INT'?"),
    ("seats INT", "seats INT(11)", "column 'seats' has type INT(11), and Spark's INT has no length; write INT"),
    ("seats INT", "seats DECIMAL(40,2)", "'seats' has type DECIMAL(40, 2); Spark has DECIMAL(p,s) with 0 <= s <= p"),
    ("seats INT", "seats", "p.yaml:11: right.schema: not a Spark column list: column 'seats' has no type; write"),
    ("year INT, ", "year INT ", "not a Spark column list: column 'year': a comma is missing before 'seats'"),
    ("key: [id]", "key: [idd]", "it has id, carrier, tailnum, dep_delay, extra; did you mean 'id'?"),
    ("foreign_key: tailnum", "foreign_key: tailnumm", "extra; did you mean 'tailnum'?"),
    ("- id", "- dep_dely", "column 'dep_dely' is in neither schema; left has id, carrier, tailnum, dep_delay, extra; "),
    ("- id", "- dep_dely", "p.yaml:14: select: 'dep_dely': "),
    ("- id", "- lefft.id", "; did you mean 'left'?"),
    ("format: debezium", "format: debzium", "; did you mean 'debezium'?"),
    ("join: left", "join: lef", "it must be 'inner', 'left' or 'outer'; did you mean 'left'?"),
    ("join: left", "join: left\nkind: tabel", "'query'; did you mean 'table'?"),
    (
        "join: left",
        "join: left\nsettings: {strategy: {responses: ful}}",
        "p.yaml:3: settings.strategy.responses: 'ful' is not possible; it must be 'auto', 'incremental' or 'full'; did",
    ),
    ("join: left", "join: left\nsettings: {freshness: {eror_after: 1 day}}", "did you mean 'error_after'?"),
    ("join: left", "join: left\nsettings: {freshness: 1 dya}", "weeks); did you mean 'day'?"),
    ("- id", "- (select 1) AS x", "a subquery is not possible here"),
    ("- id", "- id -- the key", "p.yaml:14: select: 'id -- the key': leave out comments"),
    ("- id", "- 'if(id > 1, id, 2) -- x'", "leave out comments"),
    ("- id", "- 'id,'", "p.yaml:14: select: 'id,': leave out"),
    ("- id", "- id;", "p.yaml:14: select: 'id;': leave out"),
    ("- id", "- drop table x", "p.yaml:14: select: 'drop table x': not"),
    ("- id", "- id FROM other", "p.yaml:14: select: 'id FROM other': not one SQL expression"),
    ("- id", "- id id2 id3", "p.yaml:14: select: 'id id2 id3': not a SQL expression"),
    (
        "foreign_key: tailnum",
        "foreign_key: [coalesce(tailnum, id)]",
        "a YAML list [a, b] an expression with a comma needs",
    ),
    ("join: left", "join: left\nsettings: 4", "p.yaml:3: settings: 4 is not possible; it must be a mapping"),
    (
        "format: debezium",
        "format: csv\n  csv: ';'",
        "left.csv: ';' is not possible; it must be a mapping: {delimiter: ",
    ),
    ("join: left", "join: left\njoin: inner", "p.yaml:3: not valid YAML: found duplicate key"),
    ("join: left", "join: left\nfile: x", "p.yaml:3: unknown key 'file'"),
    ("join: left", "join: left\nsettings:\n  shuffle_partitions: 0", "p.yaml:4: settings.shuffle_partitions"),
    ("  key: tailnum", "  key: tailnum\n  op_column: op", "p.yaml:13: right.op_column: op_column goes with"),
    (
        "  key: tailnum",
        "  key: tailnum\n  delete_when: year = 1",
        "p.yaml:13: right.delete_when: delete_when goes with",
    ),
    ("  key: tailnum", f"{ROWS}delete_when: gone", "p.yaml:14: right.delete_when: 'gone' reads column 'gone', which"),
    (
        "  key: tailnum",
        f"{ROWS}delete_when: year",
        "p.yaml:14: right.delete_when: 'year' is INT, not BOOLEAN; write 'year",
    ),
    ("  key: tailnum", f"{ROWS}delete_when: tailnum", "is STRING, not BOOLEAN; write \"tailnum = 'true'\" for example"),
    ("  key: tailnum", f"{ROWS}delete_when: true", "'TRUE' reads no column: it would delete every row, or none"),
    ("  key: tailnum", f"{ROWS}delete_when: year < rand()", "RAND() is not deterministic"),
    (
        "join: left",
        "join: left\nexpectations:\n  resolved_join:\n    - {type: expect_x, kwargs: {column: seats}}",
        "p.yaml:5: expectations.resolved_join.kwargs: expect_x names column 'seats', which",
    ),
    ("join: left", "join: left\nexpectations: {lefd: []}", "unknown key 'expectations.lefd'; did you mean 'left'?"),
    ("join: left", "join: left\nexpectations:\n  left: none.yaml", "p.yaml:4: the suite 'none.yaml' cannot be read"),
    ("join: left", "join: left\nexpectations:\n  left: p.yaml", "p.yaml:4: the suite 'p.yaml' is no list of"),
    (
        "join: left",
        "join: left\nexpectations:\n  left: [{type: expect_a, name: n}, {type: expect_b, name: n}]",
        "two expectations of left are called 'n'",
    ),
]


def test_own_suites_stand_in_the_file_or_in_one_as_great_expectations_writes_it(tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(
        '{"name": "s", "id": "0-1", "expectations": [{"type": "expect_column_to_exist", "id": "2", '
        '"kwargs": {"column": "seats"}, "meta": {}, "severity": "warning"}]}'
    )
    unique = "    - {type: expect_column_values_to_be_unique, kwargs: {column: id}}\n"
    suites = load(tmp_path, f"{GOOD}expectations:\n  right: suite.json\n  left:\n{unique}{unique}").expectations
    assert [(one.name, one.severity) for one in suites.right] == [("own_column_to_exist_seats", "warning")]
    assert [one.name for one in suites.left] == [
        "own_column_values_to_be_unique_id",
        "own_column_values_to_be_unique_id_again",
    ]
    assert suites.resolved_join == ()


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES, ids=[f"{w}" for _, w, _ in MISTAKES])
def test_a_mistake_names_file_line_and_cure(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in GOOD
    assert message in error_of(tmp_path, GOOD.replace(right, wrong, 1))


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("join: left", "join: right").replace("key: [id]", "key: [x]")
    lines = error_of(tmp_path, text).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "7"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "is a YAML mapping"),
        ("a: [", "p.yaml:2: not valid YAML"),
        ("a:\n- 2024-02-30", "p.yaml:2: not valid YAML near '2024-02-30': day is out of range for month"),
        ("a: !!bool maybe", "p.yaml:1: not valid YAML near 'maybe'"),
        ("\n? [[1]]\n: b", "p.yaml:3: not valid YAML near 'b': unhashable type"),
        (f"a: {'9' * 5000}", f"p.yaml:1: not valid YAML near '{'9' * 40}': Exceeds the limit"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in error_of(tmp_path, text + "\n")


def test_a_warehouse_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    text = GOOD + "warehouse: ware[house]\n"
    assert "has [ ] in it, which Delta tables cannot be written under" in error_of(tmp_path, text)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="there is no such pipeline file"):
        load_spec(tmp_path / "none.yaml")


def bomb(depth: int) -> str:
    """A pipeline file of some lines whose values, written out, would be 9 ** depth texts."""
    lines = ["x0: &x0 ha", *(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, depth + 1))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(40), "p.yaml:7: the aliases up to *x5 stand for more than 1,000,000 characters"),
        ("a: &a [1, *a]\n", "p.yaml:1: the alias *a stands for a value that contains it"),
        (f"a: &a {'x' * 300_000}\nb:\n- *a\n- *a\n- *a\n- *a\n", "p.yaml:6: the aliases up to *a stand for more than"),
    ],
)
def test_aliases_that_expand_without_end_are_refused_before_they_do(tmp_path: Path, text: str, message: str) -> None:
    tracemalloc.start()
    told = error_of(tmp_path, text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message in told
    assert most < 50_000_000
    (tmp_path / "suite.yaml").write_text(text)
    told = error_of(tmp_path, f"{GOOD}expectations:\n  left: suite.yaml\n")
    assert "p.yaml:19: the suite 'suite.yaml' cannot be read: line " in told


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    told = error_of(tmp_path, "a: " + "[" * 400 + "]" * 400)
    assert told == "p.yaml:1: its lists and mappings are nested too deeply"


def test_aliases_save_writing_what_is_the_same(tmp_path: Path) -> None:
    text = GOOD.replace("\nleft:\n", "\nleft:\n  <<: &both {batch_by: arrival, contents: events}\n")
    spec = load(tmp_path, text.replace("\nright:\n", "\nright:\n  <<: *both\n"))
    assert [(spec.side(one).batch_by, spec.side(one).contents) for one in spec.sides] == [("arrival", "events")] * 2
