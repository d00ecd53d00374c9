"""Checks and the quarantine as facts: what holds, what does not, what mends it, and records that could not be used."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any, TypedDict

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.contract import loaded
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.errors import FkPipelineError, LeftToSpark
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.places import relative
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.checks import FailedCheck
from fk_pipeline.store.rows_in_process import RowRequest

RECORDS = 50
"""The most records of the quarantine that are shown."""

RAW_CHARACTERS = 300
"""The most characters of the text of one."""


class CheckFacts(TypedDict):
    """The last result of a check; if it stops batches now, the last of the results for which it does.

    Attributes:
        stage, check: whose, and its name.
        description: what must hold; None: it is not known any more.
        severity: `critical`, `warning` or `info`; `summary` of all together.
        depth: `batch` or `full`; `first` and `last` are the batches that were looked at, None: all.
        passed: whether it holds; `red`: whether it stops batches now.
        value: rows that break it, or the share that it is about; of all together how many hold.
        pending: of the rows that break it, those that due work explains.
        batches: the batches of the rows that break it.
        at: when it was checked.
        waived: why somebody waived it; None: nobody did.
        remedy: what mends it, or the first of its batches; None if it holds, or for all expectations of a stage
            together (`check` is empty).
        samples: the command that shows rows that break it; None if it holds.
    """

    stage: str
    check: str
    description: str | None
    severity: str
    depth: str
    first: int | None
    last: int | None
    passed: bool
    red: bool
    value: float | None
    pending: int
    batches: list[int]
    at: str
    waived: str | None
    remedy: str | None
    samples: str | None


def check_facts(spec: PipelineSpec, ledger: Ledger) -> list[CheckFacts]:
    """Returns the result of each check that did not hold once, and of each stage as a whole; red ones first."""
    suites = loaded(spec.definition.suites)
    known = {(stage, check.name): check for stage, suite in suites.items() for check in suite} if suites else {}
    rows = ledger.entries.rows("checks")
    waived = {(row["stage"], row["name"]): row for row in rows if row["event"] == "waived"}
    last = {(row["stage"], row["name"]): row for row in rows if row["event"] == "checked"}
    red: dict[tuple[str, str], list[FailedCheck]] = defaultdict(list)
    for check in ledger.checks.failed():
        red[check.stage, check.name].append(check)
    of_entry = {row["entry"]: row for row in rows}
    last |= {place: of_entry[max(check.entry for check in group)] for place, group in red.items()}
    facts: list[CheckFacts] = []
    for place, row in last.items():
        failed, expected, waiving = red.get(place), known.get(place), waived.get(place)
        bad = not row["passed"]
        remedy = check_failed(failed, spec, ledger).fix if failed is not None else None
        if bad and remedy is None and expected is not None:
            remedy = expected.advice.format(file=spec.file)
        facts.append(
            {
                "stage": place[0],
                "check": place[1],
                "description": None if expected is None else expected.description,
                "severity": row["severity"] or "critical",
                "depth": row["depth"],
                "first": row["first"],
                "last": row["last"],
                "passed": bool(row["passed"]),
                "red": failed is not None,
                "value": row["value"],
                "pending": row["pending"] or 0,
                "batches": [*(row["batches"] or ())][:50],
                "at": row["recorded_at"].isoformat(timespec="seconds"),
                "waived": waiving["reason"] if waiving is not None and waiving["entry"] > row["entry"] else None,
                "remedy": remedy if bad else None,
                "samples": f"fk-pipeline verify {spec.file}" if bad and place[1] else None,
            }
        )
    return sorted(facts, key=lambda fact: (not fact["red"], fact["passed"], fact["stage"], fact["check"]))


def quarantined(pipeline: ReadablePipeline, until: float, left_out: list[str]) -> list[dict[str, Any]]:
    """Returns the newest records of the quarantine: `side`, `batch`, `file`, `line`, `reason`, and `text`, the record.

    With sensitive columns the text is left out, as it may have any value.

    Args:
        pipeline: the pipeline.
        until: when to read no more (`time.monotonic`).
        left_out: takes sentences about what is left out.
    """
    spec = pipeline.spec
    if s.QUARANTINE not in {table.name for table in spec.definition.tables}:
        return []
    if time.monotonic() >= until and pipeline.ledger().logs.version(f"{spec.home}/{s.QUARANTINE}") is not None:
        left_out.append("Records of the quarantine are left out: reading the rest takes long.")
        return []
    names = {"side": s.SIDE, "batch": s.BATCH, "file": s.FILE, "line": s.LINE, "reason": s.REASON, "text": s.RAW}
    if spec.has_sensitive:
        del names["text"]
        left_out.append("The texts of quarantined records are left out: they may have sensitive values.")
    order = [(s.BATCH, True), (s.FILE, False), (s.LINE, False)]
    try:
        rows = pipeline.relation(s.QUARANTINE).read(RowRequest([*names.values()], order=order, limit=RECORDS))
        records = [json.loads(line) for line in json_lines(rows)]
    except LeftToSpark as error:
        left_out.append(f"Records of the quarantine are left out: {error}.")
        return []
    except FkPipelineError:  # the state of the pipeline says it
        return []
    facts = []
    for record in records:
        shown = {name: record[column] for name, column in names.items()}
        shown["file"] = None if shown["file"] is None else relative(spec, shown["file"])
        if shown.get("text"):
            shown["text"] = shown["text"][:RAW_CHARACTERS]
        facts.append(shown)
    return facts
