"""Runs cases through an engine and prints them, for `trace`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fk_pipeline.console import err, print_table, say, tell
from fk_pipeline.errors import UsageError
from fk_pipeline.trace.cases import AnyCase, AnyStreamCase, AnyWindowCase, Case, LagCase, TableCase
from fk_pipeline.trace.workflow import columns, rows


def by_reference(cases: Sequence[AnyCase], rules: str) -> Iterator[tuple[AnyCase, dict[str, Any]]]:
    """Yields every case with its trace by the reference; `rules` is `kafka` or `engine`."""
    from fk_pipeline.trace import reference

    for case in cases:
        yield case, reference.trace(case, reference.RULES[rules])


def by_stages(cases: Sequence[AnyCase]) -> Iterator[tuple[AnyCase, dict[str, Any]]]:
    """Yields every case with its trace by the Spark stages.

    Raises:
        UsageError: a case holds messages back.
    """
    simple: list[Case | TableCase] = []
    of_streams: list[AnyStreamCase] = []
    of_windows: list[AnyWindowCase] = []
    for case in cases:
        if isinstance(case, LagCase):
            raise UsageError(
                f"case {case.name!r} holds messages back, which only the reference can", fix="leave out --engine spark"
            )
        if isinstance(case, AnyWindowCase):
            of_windows.append(case)
        elif isinstance(case, AnyStreamCase):
            of_streams.append(case)
        else:
            simple.append(case)
    from fk_pipeline.session import start_session
    from fk_pipeline.trace import stages, streams, windows

    session = start_session()
    traces = stages.trace(simple, session, _show) | streams.trace(of_streams, session, _show)
    traces |= windows.trace(of_windows, session, _show)
    for case in cases:
        yield case, traces[case.name]


def _show(join: str, batch: int, batches: int) -> None:
    if err.is_terminal or batch % 10 == 0:
        say(f"{join} join: event {batch + 1} of {batches}")


def print_workflow(case: AnyCase, computed: dict[str, Any]) -> None:
    """Prints the workflow table of a case, with its name and description above."""
    tell(f"{case.name} ({case.join} join): {case.description}".rstrip(": "))
    print_table(columns(case), rows(case, computed))
    if computed.get("final", {}).get("result_equals_batch_join") is False:
        tell("The result is not the join of the two tables.")
    if "error" in computed:
        tell(f"Kafka dies on event {computed['error']['at_event'] + 1}: {computed['error']['exception']}")
    tell()
