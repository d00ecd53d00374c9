"""The recorded cases of Kafka Streams in `tests/data/kafka`."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

from fk_pipeline.trace.cases import AnyCase, AnyStreamCase, AnyWindowCase, Case, LagCase, TableCase, parse_case

DATA = Path(__file__).parent / "data" / "kafka"


@cache
def _cases(name: str) -> tuple[AnyCase, ...]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return tuple(parse_case(json.loads(line)) for line in file)


def joins() -> list[Case]:
    """Returns the cases in which every event is processed to its end before the next."""
    return [case for case in _cases("fk-join") if isinstance(case, Case)]


def lagging_joins() -> list[LagCase]:
    """Returns the cases in which messages wait until they are delivered."""
    return [case for case in _cases("fk-lag") if isinstance(case, LagCase)]


def joins_by_key() -> list[TableCase]:
    """Returns the cases of two tables that are joined by their common key."""
    return [case for case in _cases("table-table") if isinstance(case, TableCase)]


def joins_of_streams() -> list[AnyStreamCase]:
    """Returns the cases of a stream that is joined to a table or a global table."""
    cases = (*_cases("stream-table"), *_cases("stream-global-table"))
    return [case for case in cases if isinstance(case, AnyStreamCase)]


def joins_of_two_streams() -> list[AnyWindowCase]:
    """Returns the cases of two streams that are joined within a span of time, and of one that is joined with itself."""
    cases = (*_cases("stream-stream"), *_cases("self-join"))
    return [case for case in cases if isinstance(case, AnyWindowCase)]
