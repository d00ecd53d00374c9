"""What Dagster shows of materialisations, definitions and checks: from `assets` and `expectations`.

The keys are those of made-up runs; a key without a meaning is an error, and so is a meaning without a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import starmap
from pathlib import Path
from typing import Any

from blocks.markdown import code, items
from blocks.sample import SPEC

from fk_pipeline.assets import current, shown
from fk_pipeline.expectations import checks
from fk_pipeline.expectations.checking import Checked, CheckResult
from fk_pipeline.expectations.validation import Outcome
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import tables
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.rules.suites import SUITES
from fk_pipeline.rules.scan import Finding
from fk_pipeline.rules.suites import Depth
from fk_pipeline.store import schemas
from fk_pipeline.store.ledger.runs import StageState, Success

_COUNTS = {"rows": 1, "superseded": 1}


def blocks() -> dict[str, str]:
    """The metadata keys, by the names of their blocks."""
    return {
        "metadata.numbers": _numbers(),
        "metadata": items(
            [
                f"A materialisation: {_known(shown.OF_BATCH, _of_batches())}",
                f"its table `figures`: {_known(shown.OF_FIGURES, _of_figures())}",
                f"an observation of the result: {_listed(current.OF_CURRENT)}",
                f"an observation of what landed: {_listed(shown.OF_LANDING)}",
                f"the definition of an asset: {_known(shown.OF_DEFINITION, _of_definitions())}",
                f"the result of a check: {_known(checks.METADATA, _of_checks())}",
            ]
        ),
    }


def _numbers() -> str:
    """The numbers of each stage, with the counts that they are the sums of."""
    stages = SPEC.definition.stages
    return items(f"{code(stage.name)}: {', '.join(starmap(_number, stage.counts.items()))}" for stage in stages)


def _number(name: str, counts: Iterable[str]) -> str:
    return code(name) if [name] == list(counts) else f"{code(name)} ({' + '.join(map(code, counts))})"


def _known(meanings: Mapping[str, str], keys: Iterable[str]) -> str:
    if set(meanings) != set(keys):
        raise LookupError(f"keys without a meaning, or meanings without a key: {set(meanings) ^ set(keys)}")
    return _listed(meanings)


def _listed(meanings: Mapping[str, str]) -> str:
    return ", ".join(f"{code(key)} ({meaning})" if meaning else code(key) for key, meaning in meanings.items())


def _main_tables() -> dict[Stage, schemas.Table]:
    return {
        Stage.LEFT_CHANGELOG: tables.left_changelog(SPEC, "STRUCT<...>"),
        Stage.RIGHT_TABLE: tables.right_table(SPEC, "STRUCT<...>"),
        Stage.SUBSCRIPTION_STORE: tables.subscription_store(SPEC, "STRUCT<...>"),
        Stage.RESPONSES: tables.responses(SPEC),
        Stage.RESOLVED_JOIN: tables.resolved_join(SPEC, [(one.name, "STRING") for one in SPEC.outputs]),
    }


def _shown(stage: Stage) -> dict[str, Any]:
    """The metadata of a batch with a count that is no number of a stage, and of which two runs did the same work."""
    first, again = (
        Success(entry, "run", BatchRange.of(1), _COUNTS, {"TABLE written": 1}, 1.0, "full", "why", ("", {}))
        for entry in (1, 2)
    )
    return shown.of_state(SPEC, stage, StageState(last=again, figures=first), 1)


def _of_batches() -> set[str]:
    return {_called(stage, key) for stage in Stage for key in _shown(stage)}


def _of_figures() -> set[str]:
    records = ((stage, record) for stage in Stage for record in _shown(stage)[shown.FIGURES].records)
    return {_called(stage, record.data["figure"]) for stage, record in records}


def _called(stage: Stage, key: str) -> str:
    """A key as the tables call it: numbers and counts have the names that the stages give them."""
    return "NUMBER" if key in SPEC.definition.stage(stage).counts else "COUNT" if key in _COUNTS else key


def _of_definitions() -> set[str]:
    return {key for stage, main in _main_tables().items() for key in shown.of_definition(SPEC, stage, main)}


def _of_checks() -> set[str]:
    sample: dict[str, Any] = {"key": "{}", "found": "a", "expected": "b", "batch": 1}
    keys: set[str] = set()
    for suite in SUITES.values():
        for expectation in suite:
            one = CheckResult(expectation, Outcome(passed=False), Finding(1, 0, (1,), (sample,)))
            checked = Checked(Stage.RESPONSES, Depth.FULL, None, 1, (one,), 1.0)
            keys |= set(checks.metadata_of(one, checked, Path("index.html"), "fk-pipeline run P"))
    return keys
