"""`fk-pipeline verify`: what was looked at, what the join leaves out, what is wrong and what mends it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.store.settings import settings, suiting

SELECT = (
    "[id, v, name, 'CAST(v AS DECIMAL(10,2)) AS price', \"TIMESTAMP'2026-01-01' AS at\", 'DATE(left.note) AS day', "
    "'10 / CAST(name AS INT) AS share']"
)


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.mark.slow
@pytest.mark.spark
def test_verify_says_what_it_looked_at_what_is_left_out_and_what_mends_what_is_wrong(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", left_key="[id, v]", select=SELECT)
    noted = '{"op": "u", "id": 2, "fk": "a", "v": "2", "note": "2026-03-01"}'
    left = [(1, "a", "1.50"), noted, (3, "zero", "3"), (4, "a", "no number"), (5, "never", "7"), "{broken"]
    made.land(0, left, [("a", "5"), ("zero", "0"), "[]"])
    made.pipeline.run()
    told = invoke("verify", made.file, "--no-checks")
    assert told.exit_code == 0, told.stdout
    fails = f"an expression of select fails on them: 'fk-pipeline quarantine {made.file}' lists them"
    assert told.stdout.splitlines() == [
        "all 4 rows of the result are right: 2 matched, 2 without a match, 1 left out",
        "4 result rows: equal to the join of the two tables, without what is listed here",
        "joined anew: 5 left rows and 2 right rows",
        f"- 1 left row left out and 1 left row without the right row, as {fails}",
        f"- 2 lines of landing files in neither table: 'fk-pipeline quarantine {made.file}' lists them",
    ]
    assert "quarantined: 4" in invoke("status", made.file).stdout
    told = invoke("explain", made.file, "--key", "id=3,v=3").stdout
    assert "so a left join keeps the left row without it." in told

    table = f"delta.`{made.pipeline.runner.warehouse.path('resolved_join')}`"
    with settings(made.pipeline.session, suiting(0)):
        made.pipeline.session.sql(
            f"UPDATE {table} SET day = NULL, price = price + 1, at = TIMESTAMP'2026-01-02', name = '' WHERE id = 2"
        )
        made.pipeline.session.sql(f"DELETE FROM {table} WHERE id = 1")
    wrong = invoke("verify", made.file)
    assert wrong.exit_code == 1
    lines = wrong.stdout.splitlines()
    assert lines[0] == "2 of 4 rows are wrong: 1 missing, 1 stale"
    assert lines[1:3] == ["3 result rows: WRONG", "joined anew: 5 left rows and 2 right rows"]
    stale = 'name: expected 5, found ""; price: expected 2.00, found 3.00; at: expected 2026-01-01T00:00:00.000000Z, '
    stale += "found 2026-01-02T00:00:00.000000Z"
    assert lines[5:9] == [
        "missing 1, stale 1, unexpected 0, explained by work still due 0",
        "- missing id=1, v=1.50: id=1, v=1.50, name=5, price=1.50, at=2026-01-01T00:00:00.000000Z, day=NULL, share=2.0",
        f"- stale id=2, v=2: {stale}; day: expected 2026-03-01, found NULL",
        f"Fix: fk-pipeline rebuild {made.file} makes state and result anew from the changelogs",
    ]
    red = wrong.stdout.split("- FAILED no_missing_row: 1.")[1]
    assert "id=1" not in red, "each wrong row is shown once"
    fix = f"    Fix: fk-pipeline rebuild {made.file} --stages resolved_join makes it anew"
    assert red.splitlines()[1].startswith(fix)
    proof = wrong.stdout.split("- FAILED rows_are_those_of_the_join: 2.")[1]
    assert proof.splitlines()[1].startswith(fix)
    assert "no_missing_answer" not in wrong.stdout, "what only a check of batches can tell has no result"
    assert "not be evaluated" not in wrong.stdout
    found = json.loads(invoke("verify", made.file, "--no-checks", "--format", "json").stdout)
    told = {name: found[name] for name in ("left_rows", "right_rows", "left_out", "unmatched", "quarantined_lines")}
    assert list(told.values()) == [5, 2, 1, 1, 2]
    assert found["sample"][1]["found"] == {
        "name": "",
        "price": "3.00",
        "at": "2026-01-02T00:00:00.000000Z",
        "day": None,
    }

    assert invoke("rebuild", made.file, "--stages", "resolved_join").exit_code == 0
    assert invoke("verify", made.file, "--no-checks").exit_code == 0
    made.file.write_text(made.file.read_text().replace("name: tested", "name: renamed"))
    renamed = invoke("show", made.file, "resolved_join")
    assert str(renamed.exception.what).endswith("as pipeline renamed; other pipelines here: tested")
