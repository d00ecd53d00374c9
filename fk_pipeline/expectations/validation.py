"""Great Expectations: evaluates the findings of a scan, runs the suites of users, writes Data Docs.

A built-in expectation requires that a number, which one Spark job has computed, is not above its bound: Great
Expectations on Spark would start ten jobs instead of one. Importing it takes seconds; only a run with checks does so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from fk_pipeline.environment.spark_address import remote_of
from fk_pipeline.environment.warm_spark import usable
from fk_pipeline.privacy import LEFT_OUT
from fk_pipeline.rules.scan import Finding
from fk_pipeline.rules.suites import Expectation
from fk_pipeline.spec.settings import OwnExpectation, Settings

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.datasource.fluent import PandasDatasource, SparkDatasource
    from great_expectations.expectations.expectation import Expectation as GxExpectation
    from pyspark.sql import DataFrame

SITE = "fk_pipeline"
"""The name of the Data Docs site within its context."""

SUMMARY: dict[str, Any] = {"result_format": "SUMMARY"}
COUNTS: dict[str, Any] = {"result_format": "BASIC", "partial_unexpected_count": 0}
"""Result formats of Great Expectations: its summary, and counts with as few values as possible."""

IN_A_SENTENCE = 3
"""The largest number of sample rows that the Data Docs show for a broken expectation."""


@dataclass(frozen=True)
class Outcome:
    """Whether an expectation holds. If it could not be evaluated, `problem` has the reason."""

    passed: bool = False
    problem: str | None = None


def _context() -> EphemeralDataContext:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(enable=False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


@cache
def _shared_context() -> EphemeralDataContext:
    """Returns the context that all checks of a process without Data Docs share: each context leaves a folder behind."""
    return _context()


def import_early() -> None:
    """Starts to import Great Expectations in the background: it takes about as long as Spark takes to start.

    Does nothing where Spark may be a Spark Connect server, because both threads would import its client, in different
    orders. The next import waits for this one, and raises the error if it failed.
    """

    def begin() -> None:
        with suppress(Exception):
            import_module("great_expectations")

    if remote_of(os.environ) is None and not usable(os.environ):
        Thread(target=begin, daemon=True).start()


class Validator:
    """One context of Great Expectations, for one thread at a time. It stores only the Data Docs.

    Args:
        docs: the folder of the Data Docs; None to write none.
    """

    def __init__(self, docs: Path | None = None) -> None:
        self.docs = docs
        self._context = _context() if docs is not None else _shared_context()
        if docs is not None:
            site: Any = {
                "class_name": "SiteBuilder",
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "show_cta_footer": False},
                "show_how_to_buttons": False,
                "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.absolute())},
            }
            self._context.add_data_docs_site(SITE, site)

    @property
    def index(self) -> Path | None:
        """The first page of the Data Docs; None if they are not written."""
        return None if self.docs is None else self.docs.absolute() / "index.html"

    def assert_findings(
        self,
        pipeline: str,
        table: str,
        findings: Mapping[str, Finding],
        expectations: Sequence[Expectation],
        settings: Settings,
    ) -> dict[str, Outcome]:
        """Returns, per expectation, whether the finding is within the bound.

        Args:
            pipeline: the name of the pipeline.
            table: the name for the numbers in Great Expectations.
            findings: the findings, by expectation.
            expectations: the expectations.
            settings: the settings with the bounds.
        """
        import pandas as pd
        from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween
        from great_expectations.expectations.metadata_types import FailureSeverity

        expected: list[GxExpectation] = [
            ExpectColumnMaxToBeBetween(
                column=expectation.name,
                min_value=0,
                max_value=expectation.at_most(settings),
                description=_described(expectation, findings.get(expectation.name, Finding())),
                severity=FailureSeverity(expectation.severity),
                meta={"name": expectation.name},
            )
            for expectation in expectations
        ]
        known = self._context.data_sources.all()
        source: Any = known[pipeline] if pipeline in known else self._context.data_sources.add_pandas(pipeline)
        counts = pd.DataFrame([{name: finding.value for name, finding in findings.items()}])  # a column per expectation
        results = self._validate(source, table, counts, expected)
        return {name: _outcome(result) for name, result in results.items()}

    def run_own(
        self,
        pipeline: str,
        table: str,
        rows: DataFrame,
        expectations: Sequence[OwnExpectation],
        counts_only: bool = False,
    ) -> dict[str, tuple[Outcome, Finding]]:
        """Runs expectations of a user on rows; returns outcome and finding by name.

        Args:
            pipeline: the name of the pipeline.
            table: the name for the rows in Great Expectations.
            rows: the rows.
            expectations: the expectations.
            counts_only: reports no value of the rows, only the outcome and the number of rows that break the
                expectation. Not for Data Docs.
        """
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
        from great_expectations.expectations.metadata_types import FailureSeverity

        results: dict[str, tuple[Outcome, Finding]] = {}
        expected: list[GxExpectation] = []
        for expectation in expectations:
            try:
                config = ExpectationConfiguration(
                    type=expectation.type,
                    kwargs=dict(expectation.kwargs),
                    meta={**expectation.meta, "name": expectation.name},
                    description=expectation.description,
                    severity=FailureSeverity(expectation.severity),
                )
                expected.append(config.to_domain_obj())
            except Exception as error:  # noqa: BLE001  whatever the error is, only this one cannot run
                results[expectation.name] = Outcome(problem=" ".join(str(error).split())), Finding()
        if expected:
            source = self._context.data_sources.add_or_update_spark(f"{pipeline} rows", persist=False)
            form = COUNTS if counts_only else SUMMARY
            for name, result in self._validate(source, table, rows, expected, form).items():
                outcome, finding = _outcome(result), _finding(result)
                if counts_only:
                    finding = replace(finding, sample=())
                    outcome = outcome if outcome.problem is None else Outcome(problem=LEFT_OUT)
                results[name] = outcome, finding
        return results

    def _validate(
        self,
        source: PandasDatasource | SparkDatasource,
        table: str,
        rows: Any,
        expected: Sequence[GxExpectation],
        form: dict[str, Any] = SUMMARY,
    ) -> dict[str, ExpectationValidationResult]:
        """Returns the results by name: their order differs from the order of the suite."""
        from great_expectations.core import ExpectationSuite

        name = f"{source.name}.{table}"
        suite = ExpectationSuite(name=name, expectations=list(expected))
        if table not in source.get_asset_names():  # an existing asset is reused: a new one takes longer
            source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("rows")
        batch = source.get_asset(table).get_batch_definition("rows")
        if self.docs is None:
            results = batch.get_batch({"dataframe": rows}).validate(suite, result_format=form).results
        else:
            results = self._documented(name, batch, suite, rows)
        return {_name(result): result for result in results}

    def _documented(
        self, name: str, batch: BatchDefinition[Any], suite: ExpectationSuite, rows: Any
    ) -> Sequence[ExpectationValidationResult]:
        """Returns the results, and writes a page of the Data Docs."""
        import great_expectations as gx
        from great_expectations.checkpoint import UpdateDataDocsAction

        suite = self._context.suites.add(suite)
        definition = self._context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=batch, suite=suite)
        )
        update = UpdateDataDocsAction(name="docs", site_names=[SITE])
        checkpoint = self._context.checkpoints.add(
            gx.Checkpoint(name=name, validation_definitions=[definition], actions=[update])
        )
        return next(iter(checkpoint.run(batch_parameters={"dataframe": rows}).run_results.values())).results


def _name(result: ExpectationValidationResult) -> str:
    assert result.expectation_config is not None
    return str(result.expectation_config.meta["name"])


def _described(expectation: Expectation, finding: Finding) -> str:
    """Returns the description with some of the rows that break it; Data Docs show it beside the result."""
    rows = [f"key {row['key']}: {row['found']}, expected {row['expected']}" for row in finding.sample[:IN_A_SENTENCE]]
    return " ".join([expectation.description, *([f"Broken by {'; '.join(rows)}."] if rows else [])])


def _outcome(result: ExpectationValidationResult) -> Outcome:
    problem = _exception(result.exception_info or {})
    return Outcome(problem=problem) if problem is not None else Outcome(bool(result.success))


def _finding(result: ExpectationValidationResult) -> Finding:
    """Returns the finding of a user's expectation; its sample has the unexpected values of Great Expectations."""
    details = result.result or {}
    number = details.get("unexpected_count")
    values = details.get("partial_unexpected_list") or []
    if number is None:
        number, values = int(not result.success), [details.get("observed_value")]
    sample = [{"key": "", "found": str(value), "expected": "", "batch": None} for value in values]
    return Finding(number, sample=() if result.success else tuple(sample))


def _exception(info: Mapping[str, Any]) -> str | None:
    """Returns the message of the exception that an expectation, or a metric that it uses, raised; None without one."""
    if "raised_exception" in info:
        return str(info["exception_message"]) if info["raised_exception"] else None
    messages = (_exception(part) for part in info.values() if isinstance(part, Mapping))
    return next((message for message in messages if message is not None), None)
