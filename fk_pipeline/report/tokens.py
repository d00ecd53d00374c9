"""Tokens in place of sensitive values, in rows and in stories, as `privacy` puts them into samples.

What is made of text already, such as a conclusion, may quote values: it is left out. And no story passes that still has
one of the values that were replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from fk_pipeline.blocks.story import Story
from fk_pipeline.contract import loaded
from fk_pipeline.privacy import DIGITS
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

TIME_FIELDS = frozenset(("at", "time", "window", "close", "clock", "horizon", "expired_at", "late_by"))
"""Fields of stories with times of rows as text: any of them may be a sensitive value."""

CONCLUSION = "conclusion"
"""The field of a story with a sentence that quotes keys."""

SHORTEST = 3
"""Characters of the shortest value that is looked for in a story: shorter ones stand in any text."""


class Tokens:
    """Replaces the sensitive values of a pipeline."""

    def __init__(self, spec: PipelineSpec, ledger: Ledger) -> None:
        kind = spec.definition
        secret = loaded(kind.keys)(spec, kind.result.name).sensitive | spec.sensitive_outputs
        names = {*secret, *(name for side in spec.sides for name in spec.side(side).sensitive)}
        self.names = frozenset(name.lower() for name in names) if spec.has_sensitive else frozenset[str]()
        self._salt, self._seen = ledger.identity, set[str]()

    def token(self, value: Any) -> Any:
        """Returns the token of a value; None stays None."""
        if value is None:
            return None
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self._seen.add(text)
        return f"sensitive:{hashlib.sha256(f'{self._salt}{text}'.encode()).hexdigest()[:DIGITS]}"

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a row with tokens, at any depth."""
        return {
            name: self.token(value) if name.lower() in self.names else self._inside(value)
            for name, value in row.items()
        }

    def story(self, story: Story) -> Story | None:
        """Returns a story with tokens; None if it would still have a sensitive value."""
        if not self.names:
            return story
        masked: Any = self._inside(story)
        words = "\n".join(
            [masked.heading, *masked.sentences(), *(part for _, *parts in masked.events() for part in parts)]
        )
        return None if any(len(text) >= SHORTEST and text in words for text in self._seen) else masked

    def _inside(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self.row(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._inside, value))
        if is_dataclass(value) and not isinstance(value, type) and self.names:
            return replace(
                value, **{part.name: self._field(part.name, getattr(value, part.name)) for part in fields(value)}
            )
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name == CONCLUSION:
            return "Why it is so is left out: it may quote sensitive values."
        if name in TIME_FIELDS:
            return tuple(map(self.token, value)) if isinstance(value, (list, tuple)) else self.token(value)
        return self._inside(value)
