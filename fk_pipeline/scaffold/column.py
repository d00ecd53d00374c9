"""A column of a sample: its type, its values, and the kind of content that its name and its values suggest."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from fk_pipeline.scaffold.names import words_of
from fk_pipeline.scaffold.types import Inferred

SUFFIXES = frozenset({"id", "key", "uuid", "guid", "code", "number", "no", "nr", "num"})
"""The last words of names such as `order_id` and `OrderNo`, which identify what the words before them name."""

_TEXT_OF_TIME = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2}))($|[T ]+\d)|\d{1,2}:\d\d(:\d\d|$)"
)
_TEXT_OF_AMOUNT = re.compile(r"[-+]?[\d.,' ]*\d[.,]\d+( ?[%\w€$£]{1,3})?$")
_NUMBERS = frozenset({"number", "no", "nr", "num"})
_WITHIN = frozenset({"line", "position", "pos", "ordinal"})
"""Words of numbers that count the parts of one thing, such as the lines of an order: `line_no`, `position`."""
_PART = _WITHIN | {"item", "product", "article", "sku", "ean", "gtin", "upc", "isbn", "part", "component"}
"""Words of columns that tell the parts of one thing apart."""
_CHANGED = frozenset({"updated", "modified", "changed", "edited", "lastmod", "mtime"})
_CHANGE = frozenset({"update", "modification", "change"})
_MOMENT = frozenset({"at", "on", "time", "ts", "date", "timestamp", "datetime"})
_STATE = frozenset({"status", "state", "stage", "phase"})
_WORDS_OF_PROSE = 5
_WHOLE = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(\d+, ?0\)")


class Meaning(Enum):
    """The kind of content of a column."""

    IDENTIFIER = "identifier"
    """Texts without sentences, and whole numbers whose name says that they identify or count something."""
    MEASURE = "measure"
    """Amounts and other numbers."""
    TIME = "time"
    FLAG = "flag"
    PROSE = "prose"
    NESTED = "nested"


@dataclass(frozen=True)
class SampleColumn:
    """A column of the sample.

    Attributes:
        name: the name, as the pipeline file writes it.
        inferred: its type.
        values: its different values as texts, without nulls; of a nested type none.
        present: the number of rows in which it is not null.
    """

    name: str
    inferred: Inferred
    values: frozenset[str]
    present: int

    @property
    def ddl(self) -> str:
        """The column in DDL: `name TYPE`."""
        return f"{self.name} {self.inferred.type}"

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of its name, in lower case."""
        return words_of(self.name)

    @property
    def subject(self) -> tuple[str, ...]:
        """The words of its name for what it identifies: `order` of `order_id`; none if the name does not say it."""
        return self.words[:-1] if len(self.words) > 1 and self.words[-1] in SUFFIXES else ()

    @property
    def counts_parts(self) -> bool:
        """Whether its name is that of a number which counts the parts of one thing: `line_no`, `position`."""
        within = _WITHIN & {*self.words} or (self.subject == ("item",) and self.words[-1] in _NUMBERS)
        return bool(within and _WHOLE.fullmatch(self.inferred.type))

    @property
    def names_part(self) -> bool:
        """Whether its name is that of something of which one thing has several: a line, a product."""
        return bool(_PART & {*self.words})

    @property
    def names_change(self) -> bool:
        """Whether its name is that of the time of the latest change: `updated_at`, `last_change_date`."""
        words = {*self.words}
        timed = bool(_CHANGED & words or (_CHANGE & words and _MOMENT & words))
        return timed and self.meaning in (Meaning.TIME, Meaning.MEASURE)

    @property
    def names_state(self) -> bool:
        """Whether its name is that of a state which changes while the thing stays the same."""
        return not _STATE.isdisjoint(self.words[-1:])

    @property
    def may_be_key(self) -> bool:
        """Whether its type and its values can be those of a key."""
        return self.meaning is Meaning.IDENTIFIER or bool(_WHOLE.fullmatch(self.inferred.type))

    @cached_property
    def meaning(self) -> Meaning:
        """The dtype of its content, by type, name and values."""
        dtype = self.inferred.type
        if "<" in dtype:
            return Meaning.NESTED
        if dtype.startswith(("DATE", "TIMESTAMP")):
            return Meaning.TIME
        if dtype == "BOOLEAN":
            return Meaning.FLAG
        if dtype in ("STRING", "BINARY"):
            return _meaning_of_texts(self.values)
        identifies = self.names_part or not SUFFIXES.isdisjoint(self.words[-1:])
        return Meaning.IDENTIFIER if identifies and _WHOLE.fullmatch(dtype) else Meaning.MEASURE


def text_of(value: Any) -> str:
    """Returns a value as text, as its source writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning_of_texts(values: Collection[str]) -> Meaning:
    """Returns the kind of content of texts; prose if a tenth or more have lines, or as many words as a sentence."""
    long = sum("\n" in value.strip() or len(value.split()) >= _WORDS_OF_PROSE for value in values)
    if not values or not long:
        for pattern, meaning in ((_TEXT_OF_TIME, Meaning.TIME), (_TEXT_OF_AMOUNT, Meaning.MEASURE)):
            if values and all(map(pattern.match, values)):
                return meaning
    return Meaning.PROSE if 0 < len(values) <= 10 * long else Meaning.IDENTIFIER
