"""What is expected of every stage: from `fk_pipeline/kinds/foreign_key/rules/suites.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from blocks.markdown import code

from fk_pipeline.kinds.foreign_key.rules.suites import SUITES
from fk_pipeline.rules.suites import Expectation, Remedy

_OF_THE_CHANGELOG = "changelog_"
"""The prefix of the rules of the right changelog: the suite of the left one has them without it."""

PLAIN = (
    "one_row_per_key_and_batch",
    "sequence_is_present",
    "hash_is_that_of_the_row",
    "no_payload_in_a_tombstone",
    "one_row_per_right_key",
    "version_is_the_last",
    "row_is_that_of_the_changelog",
    "one_row_per_left_key",
    "hash_is_that_of_the_changelog_row",
    "foreign_key_is_that_of_the_changelog_row",
    "instruction_is_that_of_the_change",
    "one_answer_per_key_and_cause",
    "no_missing_answer",
    "no_unexpected_answer",
    "every_current_pair_has_a_response",
    "no_row_for_a_deleted_key",
    "one_row_per_right_key_alone",
    "no_stale_row_alone",
    "no_missing_row_alone",
    "result_key_is_unique",
    "result_key_is_that_of_the_row",
    "foreign_key_is_the_current_one",
)
"""The expectations whose names say what they ask for."""


def blocks() -> dict[str, str]:
    """The suites of all stages, by the name of their block."""
    unknown = set(PLAIN) - {one.name for suite in SUITES.values() for one in suite}
    if unknown:
        raise LookupError(f"there is no expectation {', '.join(sorted(unknown))}")
    first: dict[Expectation, str] = {}
    texts = []
    for stage, suite in SUITES.items():
        texts.append(f"### {stage}\n\n{_listed(suite, first)}")
        first = dict.fromkeys(suite, stage) | first
    return {"suites": "\n\n".join(texts)}


def _listed(suite: Iterable[Expectation], first: Mapping[Expectation, str]) -> str:
    """A suite; `first` has the stages before it by their expectations, which are only named here."""
    shown = [one for one in suite if not one.name.startswith(_OF_THE_CHANGELOG)]
    remedies = [one.remedy for one in shown]
    usual = max(remedies, key=remedies.count)
    plain: dict[str, list[str]] = {}
    for one in shown:
        if one.name in PLAIN and one not in first:
            plain.setdefault(_notes(one, usual), []).append(code(one.name))
    lines = [f"* {', '.join(names)}{notes}" for notes, names in plain.items()]
    lines += [
        f"* {code(one.name)}: {one.description}{_notes(one, usual)}"
        for one in shown
        if one.name not in PLAIN and one not in first
    ]
    for stage in dict.fromkeys(first[one] for one in shown if one in first):
        names = ", ".join(code(one.name) for one in shown if first.get(one) == stage)
        lines.append(f"* as in `{stage}`: {names}")
    return "\n".join([f"Mended by a {usual}:\n", *lines])


def _notes(one: Expectation, usual: Remedy) -> str:
    """What is not so of all: severity, remedy, bound, depth, the pipelines that have it."""
    notes = [
        *([one.severity] if one.severity != "critical" else []),
        *([one.remedy] if one.remedy != usual else []),
        *([code(one.threshold)] if one.threshold else []),
        *(f"only {depth}" for depth in one.depths if len(one.depths) == 1),
        *([one.only] if one.only else []),
    ]
    return f" ({', '.join(notes)})" if notes else ""
