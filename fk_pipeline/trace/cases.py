"""Case files: one small history of a join as a JSON object (`docs/reference/case.md`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fk_pipeline.errors import UsageError
from fk_pipeline.kinds.foreign_key.kafka.stores import HISTORY_RETENTION_MS


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Record(_Strict):
    """One row that arrives. A null value is a tombstone; a null key belongs to no row."""

    key: str | None
    value: dict[str, Any] | None
    ts: int = Field(ge=0)
    """The timestamp in milliseconds."""


def _left_rows_have_a_foreign_key(record: Any) -> Any:
    foreign_key = record.value.get("fk", 0) if record.side == "left" and record.value is not None else None
    if foreign_key is not None and not isinstance(foreign_key, str):
        raise ValueError("a left value has a field fk, a text or null")
    return record


class Event(_Record):
    """A row that arrives at a side; all its consequences are processed before the next event."""

    side: Literal["left", "right"]
    _checked = model_validator(mode="after")(_left_rows_have_a_foreign_key)


class Arrival(_Record):
    """A row that arrives at a side; the messages that it causes wait."""

    op: Literal["left", "right"]
    _checked = model_validator(mode="after")(_left_rows_have_a_foreign_key)

    @property
    def side(self) -> Literal["left", "right"]:
        """The side at which the row arrives."""
        return self.op


class Delivery(_Strict):
    """The delivery of the oldest waiting message of a topic."""

    op: Literal["deliver"]
    from_: Literal["subscription", "response"] = Field(alias="from")


class TableEvent(_Strict):
    """A row or record that arrives at a side of a join by key.

    A null value is a tombstone, and in a stream no record; a null key belongs to no row.
    """

    side: Literal["left", "right"]
    key: str | None
    value: str | None
    ts: int = Field(ge=0)
    """The timestamp in milliseconds."""


class _Named(_Strict):
    name: str = Field(min_length=1)
    description: str = ""
    expected: Any = None
    """The recorded output; this module does not read it."""


class _Tables(_Named):
    left_versioned: bool = False
    right_versioned: bool = False
    history_retention_ms: int = Field(default=HISTORY_RETENTION_MS, ge=0)


class _Join(_Tables):
    join: Literal["inner", "left"]
    wire: bool = False
    """Whether the trace also shows the bytes of every message."""


class Case(_Join):
    """A foreign-key join and the events that arrive at it, in order of arrival."""

    family: Literal["fk-join"]
    events: tuple[Event, ...]


class LagCase(_Join):
    """A foreign-key join whose messages wait until they are delivered, as they may on a broker."""

    family: Literal["fk-lag"]
    ops: tuple[Annotated[Arrival | Delivery, Field(discriminator="op")], ...]


class TableCase(_Tables):
    """A join of two tables by their common key, and the events that arrive at it, in order of arrival."""

    family: Literal["table-table"]
    join: Literal["inner", "left", "outer"]
    events: tuple[TableEvent, ...]


class _StreamJoin(_Named):
    join: Literal["inner", "left"]


class StreamCase(_StreamJoin):
    """A join of a stream, the left side, with a table by their common key."""

    family: Literal["stream-table"]
    right_versioned: bool = False
    history_retention_ms: int = Field(default=HISTORY_RETENTION_MS, ge=0)
    grace_ms: int | None = Field(default=None, ge=0)
    """How long records of the stream wait, in milliseconds; null: not at all."""
    events: tuple[TableEvent, ...]

    @model_validator(mode="after")
    def _grace_needs_a_history(self) -> StreamCase:
        if self.grace_ms is not None and not (self.right_versioned and self.grace_ms <= self.history_retention_ms):
            raise ValueError("grace_ms needs a versioned table whose history is as long")
        return self


class GlobalCase(_StreamJoin):
    """A join of a stream, the left side, with a global table, by the field `fk` of its values."""

    family: Literal["stream-global-table"]
    events: tuple[Event, ...]


class _Windowed(_Named):
    join: Literal["inner", "left", "outer"]
    before_ms: int
    """How much earlier than the left record the right one may be, in milliseconds; may be negative."""
    after_ms: int
    """How much later it may be; may be negative."""
    grace_ms: int = Field(default=0, ge=0)
    """How long after its window a late record is still taken, in milliseconds."""
    eager: bool = False
    """Whether records without a match are emitted at once, as with the old `JoinWindows.of().grace()`."""
    events: tuple[TableEvent, ...]

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> _Windowed:
        if self.before_ms + self.after_ms < 0:
            raise ValueError("the window ends before it begins: before_ms + after_ms is less than 0")
        return self


class WindowCase(_Windowed):
    """A join of two streams within a span of time, and the events that arrive at it, in order of arrival."""

    family: Literal["stream-stream"]


class SelfJoinCase(_Windowed):
    """A join of a stream with itself: every event is of the left side and counts for both."""

    family: Literal["self-join"]
    optimized: bool = False
    """Whether Kafka's rule `single.store.self.join` applies."""

    @model_validator(mode="after")
    def _one_stream(self) -> SelfJoinCase:
        if any(event.side == "right" for event in self.events):
            raise ValueError("a self-join has one stream: every event is of the left side")
        return self


AnyStreamCase = StreamCase | GlobalCase
AnyWindowCase = WindowCase | SelfJoinCase
AnyCase = Case | LagCase | TableCase | StreamCase | GlobalCase | WindowCase | SelfJoinCase
_ADAPTER: TypeAdapter[AnyCase] = TypeAdapter(Annotated[AnyCase, Field(discriminator="family")])


def load_cases(paths: Iterable[Path]) -> list[AnyCase]:
    """Returns the cases of files, and of all `.json` files in folders, in the order of their paths.

    Raises:
        UsageError: a file does not exist, a folder has no case, a file is no case, or two cases have the same name.
    """
    cases: dict[str, AnyCase] = {}
    for path in paths:
        if not path.exists():
            raise UsageError("there is no such file or folder", where=str(path))
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError("there is no .json file in this folder", where=str(path))
        for file in files:
            case = _load(file)
            if case.name in cases:
                raise UsageError(f"two cases are called {case.name!r}", where=str(file))
            cases[case.name] = case
    return list(cases.values())


def parse_case(value: Any) -> AnyCase:
    """Returns the case of a JSON object.

    Raises:
        pydantic.ValidationError: the object is no case.
    """
    return _ADAPTER.validate_python(value)


def _load(file: Path) -> AnyCase:
    try:
        return parse_case(json.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"no case of a join: {place}: {first['msg']}", where=str(file)) from None
    except ValueError as error:  # json, utf-8
        raise UsageError(f"not JSON: {error}", where=str(file)) from None


def serialise(value: dict[str, Any] | str | None) -> str | None:
    """Returns a value as compact JSON in the order of its fields: the text whose UTF-8 bytes are hashed and sent."""
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
