"""The first cases of a new pipeline, `NAME.tests.yaml`: one row of each input, with made-up values, and the result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.scaffold.text import yaml_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.project import CASES
from fk_pipeline.spec.sql import SqlTextError, parse_expression
from fk_pipeline.testing.inputs import CaseInput, inputs_of_cases

_RowValues = Mapping[str, Any]

_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_VALUES = {
    "STRING": "a",
    "CHAR": "a",
    "VARCHAR": "a",
    "BOOLEAN": True,
    "DATE": "2026-01-31",
    "TIMESTAMP": "2026-01-31T12:00:00Z",
    "TIMESTAMP_NTZ": "2026-01-31T12:00:00",
}
"""Per type, by its first word, the value that a case gives."""

_BEFORE = {"2026-01-31T12:00:00Z": "2026-01-01T00:00:00Z", "2026-01-31T12:00:00": "2026-01-01T00:00:00"}
"""Per time that a case gives, a time before it."""


def tests_file(name: str) -> str:
    """Returns the name of the file of the cases of a pipeline."""
    return f"{name}{CASES}"


def first_cases(spec: PipelineSpec) -> str:
    """Returns the text of a file with the first case of a pipeline, which the pipeline passes."""
    given = {source.side: _row(source) for source in inputs_of_cases(spec) if source.lands_as == source.side}
    _join(spec, given)
    lines = [f"    - {side}: [{yaml_of(row)}]" for side, row in given.items()]
    lines = [line if number == 0 else line.replace("- ", "  ", 1) for number, line in enumerate(lines)]
    now = ["  now: 2026-01-31                    # what the clock shows"] if spec.clocks else []
    expected = _expected(spec, given)
    if expected is None:
        ending = ["  expect_quarantined: 0              # or the rows of the result: expect: [{column: value}, ...]"]
    else:
        ending = [
            "  expect:                            # only these columns are compared",
            f"    - {yaml_of(expected)}",
        ]
    return (
        "\n".join(
            [
                f"# Cases of {spec.name}: rows that are given, and rows that the result must then have. The values are",
                f"# made up. 'fk-pipeline test {spec.name}.yaml' runs them without a table of yours.",
                f"- name: {_sentence(spec)}",
                *now,
                "  given:                             # a list of batches",
                *lines,
                *ending,
            ]
        )
        + "\n"
    )


def _sentence(spec: PipelineSpec) -> str:
    """Returns the name of the case: what is true."""
    return {
        "foreign_key": "a row finds the row that it refers to",
        "window": "rows of the same time are a pair",
        "aggregate": "a row makes a group",
        "table": "a row is in the table",
    }.get(spec.kind, "rows of every table are read")


def _row(source: CaseInput) -> dict[str, Any]:
    """Returns a row of an input: a value for each column whose type has one, but none that deletes or hides it."""
    spec = source.spec
    hiding = _read_by([text for text in (spec.delete_when, spec.where) if text is not None])
    names = {name.lower() for name in source.columns}
    row: dict[str, Any] = {}
    for column in spec.as_sent.columns:
        value = _value(column.type)
        if column.name.lower() in names and value is not None and column.name.lower() not in hiding:
            row[column.name] = value
    return row


def _value(dtype: str) -> Any:
    word = re.split(r"[<( ]", dtype.upper(), maxsplit=1)[0]
    if word == "DECIMAL" and re.fullmatch(r"DECIMAL\((\d+), ?\1\)", dtype.upper()):
        return 0
    return 1 if word in _WHOLE else _VALUES.get(word)


def _read_by(texts: Sequence[str]) -> set[str]:
    """Returns the columns that expressions read, in lower case."""
    names: set[str] = set()
    for text in texts:
        try:
            names |= {path[0].lower() for path in parse_expression(text).reads}
        except SqlTextError:
            continue
    return names


def _join(spec: PipelineSpec, given: Mapping[Side, dict[str, Any]]) -> None:
    """Makes the rows of both sides of a join match: the values that are compared, and the times."""
    if Side.LEFT not in given or Side.RIGHT not in given:
        return
    left, right = given[Side.LEFT], given[Side.RIGHT]
    of_left, of_right = spec.side(Side.LEFT), spec.side(Side.RIGHT)
    texts: Sequence[str] = getattr(of_left, "foreign_key", ()) or getattr(of_left, "on", ())
    keys = [column.quoted for column in of_right.key_columns]
    others: Sequence[str] = getattr(of_right, "on", keys)
    for text, other in zip(texts, others, strict=False):
        if not parse_expression(text).plain:
            for row, sql, side in ((left, text, Side.LEFT), (right, other, Side.RIGHT)):
                for path in parse_expression(sql).reads:
                    column = spec.side(side).column(path[0])
                    if column is not None and column.type == "STRING":
                        row[column.name] = "1"
    since = of_right.valid_from
    for path in parse_expression(since).reads if since is not None else ():
        right |= {name: _before(value) for name, value in right.items() if name.lower() == path[0].lower()}


def _before(value: Any) -> Any:
    return _BEFORE.get(value, "2026-01-01" if value == _VALUES["DATE"] else value)


def _expected(spec: PipelineSpec, given: Mapping[Side, _RowValues]) -> dict[str, Any] | None:
    """Returns the row of the result, as far as it has values of the given rows as they are; None: that is not known."""
    if spec.kind == "query":
        return None
    row: dict[str, Any] = {}
    for output in spec.outputs:
        reads = spec.reads(output)
        if output.plain and len(reads) == 1 and _is_exact(reads[0][1].type):
            side, column = reads[0]
            if column.name in given.get(side, {}) and not _is_measure(spec, output.name):
                row[output.name] = given[side][column.name]
    counts = [
        str(measure.name) for measure in getattr(spec, "measures", ()) if measure.text.lower().startswith("count(*)")
    ]
    return row | dict.fromkeys(counts, 1)


def _is_measure(spec: PipelineSpec, name: str) -> bool:
    return name in {measure.name for measure in getattr(spec, "measures", ())}


def _is_exact(dtype: str) -> bool:
    """Returns whether a case writes values of a type as the result has them."""
    return dtype.upper().startswith(("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING"))
