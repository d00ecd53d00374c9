"""Case files: one small history of a foreign-key join as a JSON object (`docs/reference/case.md`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fk_pipeline.errors import UsageError
from fk_pipeline.protocol.stores import HISTORY_RETENTION_MS


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Event(_Strict):
    """One row that arrives at one side. A null value is a tombstone; a null key belongs to no row."""

    side: Literal["left", "right"]
    key: str | None
    value: dict[str, Any] | None
    ts: int = Field(ge=0)
    """Milliseconds."""

    @model_validator(mode="after")
    def _left_rows_have_a_foreign_key(self) -> Event:
        if self.side == "left" and self.value is not None:
            foreign_key = self.value.get("fk", 0)
            if foreign_key is not None and not isinstance(foreign_key, str):
                raise ValueError("a left value has a field fk, a text or null")
        return self


class Case(_Strict):
    """A join and the events that arrive at it, in order of arrival."""

    family: Literal["fk-join"]
    name: str = Field(min_length=1)
    description: str = ""
    join: Literal["inner", "left"]
    left_versioned: bool = False
    right_versioned: bool = False
    history_retention_ms: int = Field(default=HISTORY_RETENTION_MS, ge=0)
    wire: bool = False
    """Also show the bytes of every message."""
    events: tuple[Event, ...]
    expected: Any = None
    """What was recorded; not looked at here."""


def load_cases(paths: Iterable[Path]) -> list[Case]:
    """The cases of files, and of all `.json` files in folders, in order of their paths.

    Raises:
        UsageError: no such file, no case in a folder, a file that is no case, or two cases of one name.
    """
    cases: dict[str, Case] = {}
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


def _load(file: Path) -> Case:
    try:
        return Case.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"no case of a foreign-key join: {place}: {first['msg']}", where=str(file)) from None
    except ValueError as error:  # json, utf-8
        raise UsageError(f"not JSON: {error}", where=str(file)) from None


def serialise(value: dict[str, Any] | None) -> str | None:
    """A value as compact JSON in the order of its fields: the text whose UTF-8 bytes are hashed and sent."""
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
