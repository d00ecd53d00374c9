"""Runs cases, each in a copy of the pipeline with landing folders and tables of its own, and compares the result."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fk_pipeline.environment.refusals import telling_refusals
from fk_pipeline.environment.scratch import scratch_folder
from fk_pipeline.errors import FkPipelineError, PipelineFileError
from fk_pipeline.failures import root_message
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.testing.cases import ExpectedState, GivenBatch, PipelineCase
from fk_pipeline.testing.copies import copied, land
from fk_pipeline.testing.difference import Difference, ResultRows, difference_of_rows
from fk_pipeline.testing.inputs import CaseInput, inputs_of_cases
from fk_pipeline.testing.result_types import with_types
from fk_pipeline.testing.stored import quarantined_of, rows_of_result

MORE_ORDERS = 2
"""How many other orders of its batches a case runs in with `any_order`."""

_OF_ENVIRONMENT = 3
"""The exit status of errors that are not about the pipeline: no Spark, no disk."""

Opened = Callable[[PipelineSpec], Any]
"""Makes a `Pipeline` of a pipeline file, in the session that all cases share."""


@dataclass(frozen=True)
class CaseResult:
    """The result of a case.

    Attributes:
        name: its name.
        seconds: how long it took.
        where: the step, or the order of the batches, after which something was otherwise; empty: it has only one.
        difference: what was otherwise than expected.
        error: the text of the error that ended it; empty: none did.
        folder: its folder, if that was kept.
    """

    name: str
    seconds: float
    where: str = ""
    difference: Difference = field(default_factory=Difference)
    error: str = ""
    folder: Path | None = None

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.difference and not self.error


def run_cases(
    spec: PipelineSpec, cases: Sequence[PipelineCase], opened: Opened, *, any_order: bool = False, keep: bool = False
) -> Generator[CaseResult]:
    """Runs cases one after another, and yields the result of each; closing it removes what is left of their folders.

    Args:
        spec: the pipeline.
        cases: the cases.
        opened: makes the pipeline of a copy.
        any_order: whether each case of several batches runs again with them in other orders: each is landed and run
            alone, and the result must be the same in the end.
        keep: whether the folders of the cases stay, after an error too: a note of the error says where.
    """
    top = Path(tempfile.mkdtemp(prefix="fk-pipeline-test-", dir=None if keep else scratch_folder()))
    try:
        inputs = with_types(inputs_of_cases(spec), top / "types", opened)
        for number, case in enumerate(cases, start=1):
            folder = top / f"{number:03d}-{re.sub('[^a-z0-9]+', '-', case.name.lower())[:50].strip('-')}"
            started = time.monotonic()
            result = _Trial(spec, case, opened, inputs, folder).result(any_order=any_order)
            yield replace(result, seconds=time.monotonic() - started, folder=folder if keep else None)
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
    except Exception as error:
        if keep:
            error.add_note(f"its files: {top}")
        raise
    finally:
        if not keep:
            shutil.rmtree(top, ignore_errors=True)


@dataclass(frozen=True)
class _Trial:
    """One case at work, in a folder; each order of its batches has a folder in it."""

    spec: PipelineSpec
    case: PipelineCase
    opened: Opened
    inputs: list[CaseInput]
    folder: Path

    def result(self, *, any_order: bool) -> CaseResult:
        """Runs the case; an error that ends it is part of the result.

        Raises:
            FkPipelineError: one with exit status 3: other cases would end in it, too.
        """
        result = CaseResult(self.case.name, 0)
        try:
            with telling_refusals(""):
                where, difference, rows = self._steps()
                if not difference and any_order:
                    where, difference = self._other_orders(rows)
        except FkPipelineError as error:
            if error.exit_code == _OF_ENVIRONMENT:
                raise
            return replace(result, error=f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever ends a case, the others go on
            return replace(result, error=f"{type(error).__name__}: {root_message(error)}")
        return replace(result, where=where, difference=difference)

    def _steps(self) -> tuple[str, Difference, ResultRows]:
        """Runs the steps up to the first difference; returns where that is, it, and the rows of the result then."""
        pipeline = self._copy("steps")
        landed, steps = 0, self.case.steps
        rows = ResultRows((), {})
        for number, (step, now) in enumerate(zip(steps, self.case.times, strict=True), start=1):
            for batch in step.batches:
                landed += 1
                self._land(pipeline, landed, batch)
            pipeline.run(now=now)
            where = f"step {number}" if len(steps) > 1 else ""
            if step.expected is not None:
                rows = rows_of_result(pipeline)
                difference = self._difference(pipeline, step.expected, rows)
                if difference:
                    return where, difference, rows
        return where, _proof(pipeline), rows

    def _other_orders(self, rows: ResultRows) -> tuple[str, Difference]:
        """Runs the batches in other orders, up to the first in which the result has other rows."""
        last = next(step.expected for step in reversed(self.case.steps) if step.expected is not None)
        for order in _orders(len(self.case.batches), self.case.name):
            text = ", ".join(map(str, order))
            pipeline = self._copy(f"order-{text.replace(', ', '-')}")
            for number in order:
                self._land(pipeline, number, self.case.batches[number - 1])
                pipeline.run(now=self.case.times[-1])
            expected = ExpectedState(rows.rows, quarantined=last.quarantined)
            difference = self._difference(pipeline, expected, rows_of_result(pipeline)) or _proof(pipeline)
            if difference:
                return f"with the batches in the order {text}", difference
        return "", Difference()

    def _copy(self, name: str) -> Any:
        (self.folder / name).mkdir(parents=True)
        return self.opened(copied(self.spec, self.inputs, self.folder / name))

    def _land(self, pipeline: Any, number: int, batch: GivenBatch) -> None:
        land(self.inputs, pipeline.spec.file.parent, number, batch)

    def _difference(self, pipeline: Any, expected: ExpectedState, rows: ResultRows) -> Difference:
        """Returns the difference in rows, and in the number of records in the quarantine."""
        difference = difference_of_rows(expected, rows, _key_of_result(self.spec))
        records = quarantined_of(pipeline, self.opened)
        if len(records) == expected.quarantined:
            return difference
        return replace(difference, quarantined=records, quarantined_expected=expected.quarantined)


def _key_of_result(spec: PipelineSpec) -> Sequence[str]:
    """Returns the columns of the result that identify a row; none if the result has not got all of its key."""
    try:
        names = [name for _, name, _ in spec.result_key_outputs()]
    except PipelineFileError:  # a query without a key
        return ()
    return () if None in names else [name for name in names if name is not None]


def _proof(pipeline: Any) -> Difference:
    report = pipeline.verify()
    return Difference() if report.ok else Difference(unproved=report.counts())


def _orders(number: int, name: str) -> list[tuple[int, ...]]:
    """Returns some orders of so many batches, but not 1, 2 and so on; for a name always the same.

    >>> _orders(2, "any"), _orders(1, "any")
    ([(2, 1)], [])
    """
    shuffled = random.Random(name)  # noqa: S311 - no secret
    first = tuple(range(1, number + 1))
    orders: dict[tuple[int, ...], None] = {}
    for _ in range(20):
        order = tuple(shuffled.sample(first, number))
        if order != first and len(orders) < MORE_ORDERS:
            orders[order] = None
    return list(orders)
