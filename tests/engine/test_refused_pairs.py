"""A pair of rows on which `select` fails: what stays of it in the result, in a left join and in an inner one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fk_pipeline.expectations.violations import violations
from fk_pipeline.kinds.foreign_key.kind import Stage

pytestmark = pytest.mark.spark

SELECT = (
    "[id, v, \"COALESCE(right.name, 'none') AS name\", 'CAST(10 / CAST(right.name AS INT) AS STRING) AS share', "
    "'1 / CAST(v AS INT) AS of_left', \"CAST(COALESCE(right.note, left.note) AS INT) AS of_both\"]"
)


def right(key: str, name: str, note: str | None = None) -> str:
    return json.dumps({"op": "u", "k": key, "name": name, "note": note})


def rows(made: Any) -> dict[int, tuple[Any, ...]]:
    """id -> name, share, of_both"""
    found = made.pipeline.table("resolved_join").collect()
    return {row["id"]: (row["name"], row["share"], row["of_both"]) for row in found}


def verdicts(made: Any, batch: int) -> dict[int, str]:
    return {key: verdict for (key, _), verdict in made.verdicts(batch).items()}


def hold(made: Any) -> None:
    """The proof and every check of the result and of its answers find nothing."""
    report = made.pipeline.verify()
    assert report.ok, report
    for stage in (Stage.RESPONSES, Stage.RESOLVED_JOIN):
        found = violations(made.pipeline, stage, proof=report).findings
        assert {name for name, finding in found.items() if finding.value} == set()


def quarantined(made: Any) -> list[tuple[int, int, str]]:
    """Batch, left key and what fails."""
    found = made.pipeline.quarantined(side="join").collect()
    return sorted((r["batch"], json.loads(r["raw"])["left"]["id"], r["reason"].split(" AS ")[-1]) for r in found)


@pytest.mark.slow
@pytest.mark.parametrize("join", ["left", "inner"])
def test_a_left_row_stays_without_the_right_row_on_which_an_expression_fails(rows_pipeline: Any, join: str) -> None:
    made = rows_pipeline(join, select=SELECT)
    left = [(1, "a", "1"), (2, "b", "1"), (3, "b", "0"), (4, "never", "1"), (5, "c", "1")]
    alone = '{"op": "u", "id": 6, "fk": "c", "v": "1", "note": "y"}'  # nor can it be computed without a right row
    made.land(0, [*left, alone], [right("a", "5", "7"), right("b", "0"), right("c", "2", "x")])
    made.pipeline.run()
    whole = {1: ("5", "2.0", 7)}
    kept = dict.fromkeys((2, 4, 5), ("none", None, None)) if join == "left" else {}
    assert rows(made) == whole | kept
    half = "half-quarantined" if join == "left" else "quarantined"
    expected = {1: "joined", 2: half, 3: "quarantined", 4: "half-joined", 5: half, 6: "quarantined"}
    if join == "inner":
        del expected[4]
    assert verdicts(made, 0) == expected
    told = [(0, 2, "share fails on this row"), (0, 3, "of_left fails on this row"), (0, 5, "of_both fails on this row"),
            (0, 6, "of_both fails on this row")]  # fmt: skip
    assert quarantined(made) == told if join == "left" else len(quarantined(made)) == 4
    hold(made)

    made.pipeline.run("0", ["resolved_join"])  # it is decided again, and the same way
    assert (rows(made), verdicts(made, 0)[2]) == (whole | kept, half)
    assert len(quarantined(made)) == 4
    hold(made)

    made.land(1, [], [right("b", "4"), ("a",)])  # another right row, and one that goes
    made.pipeline.run()
    kept = dict.fromkeys((1, 4, 5), ("none", None, None)) if join == "left" else {}
    assert rows(made) == {2: ("4", "2.5", None)} | kept
    hold(made)

    made.land(2, [(1, "b", "1")], [right("b", "no number"), ("c",)])  # the other way round; and what fails goes
    made.pipeline.run()
    assert rows(made) == (dict.fromkeys((1, 2, 4, 5), ("none", None, None)) if join == "left" else {})
    assert {key for batch, key, _ in quarantined(made) if batch == 2} == (
        {1, 2, 3} | ({6} if join == "left" else set())
    )
    hold(made)
