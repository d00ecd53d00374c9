"""Cases through an engine, for `trace`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fk_pipeline.console import err, print_table, say
from fk_pipeline.trace.cases import Case
from fk_pipeline.trace.workflow import COLUMNS, rows


def computed_cases(cases: Sequence[Case], *, on_spark: bool) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Every case with what the engine made of it, in the order given."""
    if not on_spark:
        from fk_pipeline.trace import reference

        for case in cases:
            yield case, reference.trace(case)
        return
    from fk_pipeline.session import start_session
    from fk_pipeline.trace import stages

    found = stages.trace(cases, start_session(), _show)
    for case in cases:
        yield case, found[case.name]


def _show(join: str, batch: int, batches: int) -> None:
    if err.is_terminal or batch % 10 == 0:
        say(f"{join} join: event {batch + 1} of {batches}")


def print_workflow(case: Case, computed: dict[str, Any]) -> None:
    """The workflow table of a case, with its name and description above."""
    print_table(COLUMNS, rows(case, computed), title=f"{case.name} ({case.join} join): {case.description}".rstrip(": "))
    print()
