"""Great Expectations alone: what it says of counts, and of rows by a suite of a user."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.expectations.validation import Outcome, Validator
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.rules.suites import SUITES
from fk_pipeline.rules.scan import Finding
from fk_pipeline.rules.suites import Expectation
from fk_pipeline.spec.settings import OwnExpectation, Settings

SUITE = SUITES[Stage.LEFT_CHANGELOG]


def found_of(counts: dict[str, float]) -> dict[str, Finding]:
    return {name: Finding(value) for name, value in (dict.fromkeys((one.name for one in SUITE), 0.0) | counts).items()}


def say(
    counts: dict[str, float], wanted: tuple[Expectation, ...] = SUITE, settings: Settings | None = None
) -> dict[str, Outcome]:
    return Validator().assert_findings("p", "t", found_of(counts), wanted, settings or Settings())


def test_an_expectation_holds_up_to_its_bound() -> None:
    found = say({"no_null_key": 3, "quarantined_share_is_low": 0.02, "nobody expects": 7})
    assert {name for name, one in found.items() if not one.passed} == {"no_null_key", "quarantined_share_is_low"}
    assert set(found) == {one.name for one in SUITE}
    assert all(
        one.passed
        for one in say({"quarantined_share_is_low": 0.02}, settings=Settings(max_quarantined_share=0.02)).values()
    )


def test_one_that_cannot_be_evaluated_has_a_problem_and_no_verdict() -> None:
    found = say({}, (*SUITE, Expectation("not_counted", "Nobody counts it.")))
    assert found["not_counted"].problem is not None
    assert "not_counted" in found["not_counted"].problem
    assert found["no_null_key"] == Outcome(passed=True)


def test_it_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    say({})
    assert capfd.readouterr() == ("", "")


def test_data_docs_show_what_broke_an_expectation(tmp_path: Path) -> None:
    validator = Validator(tmp_path)
    broken = found_of({"no_null_key": 1})
    row = {"key": "the key 7", "found": "this", "expected": "that", "batch": 1}
    validator.assert_findings("p", "t", broken | {"no_null_key": Finding(1, sample=(row,))}, SUITE, Settings())
    validator.assert_findings("p", "u", broken, SUITE, Settings())
    assert validator.index == tmp_path / "index.html"
    pages = {page.name: page.read_text() for page in (tmp_path / "validations").rglob("*.html")}
    assert sorted(pages) == ["p-t.html", "p-u.html"]
    assert "Broken by key the key 7: this, expected that." in pages["p-t.html"]
    assert "Broken by" not in pages["p-u.html"]


@pytest.mark.spark
def test_a_suite_of_a_user_runs_on_rows(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, NULL), (3, NULL) AS t(id, v)")
    wanted = [
        OwnExpectation(type="expect_column_values_to_not_be_null", kwargs={"column": "v"}, name="v_is_there"),
        OwnExpectation(type="expect_column_values_to_be_in_set", kwargs={"column": "v", "value_set": ["b"]}, name="b"),
        OwnExpectation(type="expect_table_row_count_to_equal", kwargs={"value": 3}, name="three"),
        OwnExpectation(type="expect_table_row_count_to_equal", kwargs={"value": 4}, name="four"),
        OwnExpectation(type="expect_table_row_count_to_equal", kwargs={"valu": 4}, name="misspelt"),
        OwnExpectation(type="expect_column_values_to_be_unique", kwargs={"column": "none"}, name="no_column"),
    ]
    found = Validator().run_own("p", "t", rows, wanted)
    assert {name for name, (one, _) in found.items() if one.passed} == {"three"}
    assert {name for name, (one, _) in found.items() if one.problem} == {"misspelt", "no_column"}
    assert "valu" in str(found["misspelt"][0].problem)
    values = {name: (finding.value, [row["found"] for row in finding.sample]) for name, (_, finding) in found.items()}
    assert values["v_is_there"] == (2, ["None", "None"])
    assert values["b"] == (1, ["a"])
    assert values["four"] == (1, ["3"])
