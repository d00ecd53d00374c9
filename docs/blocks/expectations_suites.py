"""What is expected of every stage: from `fk_pipeline/kinds/foreign_key/rules/suites.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from blocks.markdown import code

from fk_pipeline.kinds.foreign_key.rules.suites import SUITES
from fk_pipeline.rules.suites import Expectation, Remedy

_OF_THE_CHANGELOG = "changelog_"
"""The prefix of the rules of the right changelog: the suite of the left one has them without it."""


def blocks() -> dict[str, str]:
    """The suites of all stages, by the name of their block."""
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
    lines = [f"* {code(one.name)}: {_asked(one, usual)}" for one in shown if one not in first]
    for stage in dict.fromkeys(first[one] for one in shown if one in first):
        names = ", ".join(code(one.name) for one in shown if first.get(one) == stage)
        lines.append(f"* as in `{stage}`: {names}")
    return "\n".join([f"Mended by a {usual}:\n", *lines])


def _asked(one: Expectation, usual: Remedy) -> str:
    """What it asks for, and what is not so of all: severity, remedy, bound, depth, the pipelines that have it."""
    notes = [
        *([one.severity] if one.severity != "critical" else []),
        *([one.remedy] if one.remedy != usual else []),
        *([code(one.threshold)] if one.threshold else []),
        *(f"only {depth}" for depth in one.depths if len(one.depths) == 1),
        *([one.only] if one.only else []),
    ]
    return f"{one.description} ({', '.join(notes)})" if notes else one.description
