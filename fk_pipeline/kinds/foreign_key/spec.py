"""The parts of a pipeline file that only the foreign-key join has: what a left row refers to, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.spec.base import problem
from fk_pipeline.spec.durations import Length
from fk_pipeline.spec.input_checks import check_row_expression
from fk_pipeline.spec.inputs import LeftSpec
from fk_pipeline.spec.join import JoinSpec
from fk_pipeline.spec.model import UNKNOWN_TYPE, Output
from fk_pipeline.spec.sql import Column, key_as_json, parse_expression

BY_BATCH = "batch"
"""The value of `as_of` with which a left row sees the right table as the batches up to its own left it."""

VALIDITY = ("valid_from", "valid_to")
"""The columns that `select` may name besides those of the right schema if the pipeline has `as_of`."""


def _as_result_key(foreign_key: Sequence[str], key: Sequence[Column]) -> str:
    """SQL (STRING): a foreign key as the column `result_key` of the right side; null if a part of it is null."""
    parts = [(f"CAST({text} AS {column.type})", column.name) for text, column in zip(foreign_key, key, strict=True)]
    null = " OR ".join(f"({text}) IS NULL" for text in foreign_key)
    return f"IF({null}, NULL, {key_as_json(parts)})"


class ForeignKeySpec(JoinSpec):
    """One foreign-key join, as its pipeline file describes it."""

    left: LeftSpec
    """The left input."""
    result_key: Literal["both"] | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """What identifies a row of the result, or named SQL over both sides; default: the left key."""
    as_of: str | None = None
    """The version of its right row that a left row sees: that of its `batch`, or of a time, SQL over the left columns;
    default: the latest."""
    history: Length | None = None
    """With `as_of` a time, how far back versions answer, `90 days`, of BIGINT a whole number; default: for ever."""

    @property
    def as_of_batch(self) -> bool:
        """Whether the time of a row is its batch."""
        return self.as_of == BY_BATCH

    @property
    def time_type(self) -> str:
        """The type of the times that `as_of` compares, as far as the file alone tells it."""
        if self.as_of is None or self.as_of_batch:
            return "INT"
        if self.right.holds_since_commit:
            return "TIMESTAMP"
        for side, text in ((self.right, self.right.valid_from), (self.left, self.as_of)):
            expression = None if text is None else parse_expression(text)
            kind = side.type_of(expression.reads[0]) if expression is not None and expression.plain else None
            if kind is not None:
                return kind
        return UNKNOWN_TYPE

    def result_key_outputs(self) -> Sequence[tuple[str, str | None, bool]]:
        """Returns the left key; in an outer join also the right key; or the columns of `result_key`."""
        if self.key_outputs:
            names = {output.name for output in self.outputs}
            return [(o.name, o.name if o.name in names else None, True) for o in self.key_outputs]
        left = self.plain_outputs(Side.LEFT, self.outer)
        both = self.outer or self.result_key is not None
        return [*left, *(self.plain_outputs(Side.RIGHT, True) if both else [])]

    @property
    def selects_end(self) -> bool:
        """Whether a column of the result depends on the end of validity of its right row."""
        return "valid_to" in self.selected_validity

    @property
    def selected_validity(self) -> tuple[str, ...]:
        """The columns of `VALIDITY` that the result depends on."""
        reads = {self.resolve(read) for output in self.outputs for read in parse_expression(output.sql).reads}
        return tuple(column.name for column in self.columns_of_validity if (Side.RIGHT, column) in reads)

    def _validity(self, name: str) -> Column | None:
        """Returns a column of `VALIDITY` if `select` may name it: a column of the schema has precedence."""
        if self.as_of is None or name.lower() not in VALIDITY or self.right.column(name) is not None:
            return None
        return Column(name.lower(), self.time_type)

    @cached_property
    def sensitive_outputs(self) -> frozenset[str]:
        """The columns of the result whose expression reads a sensitive column, or a validity that is made of one."""
        secret = {(side, c) for side in SIDES for c in self.side(side).columns if c.name in self.side(side).sensitive}
        if self._since_is_secret():
            secret |= {(Side.RIGHT, column) for column in self.columns_of_validity}
        return frozenset(output.name for output in self.outputs if not secret.isdisjoint(self.reads(output)))

    def _since_is_secret(self) -> bool:
        """Returns whether the time since which a right row holds is made of a sensitive column."""
        since = self.right.valid_from
        if since is None or self.right.holds_since_commit:
            return False
        return any(self.right.is_sensitive(path[0]) for path in parse_expression(since).reads)

    def columns_of(self, side: Side) -> tuple[Column, ...]:
        """Returns the columns that expressions of the result may name: those of the side, and its validity."""
        if side == Side.LEFT:
            return self.left.columns
        return (*self.right.columns, *self.columns_of_validity)

    @property
    def columns_of_validity(self) -> tuple[Column, ...]:
        """The columns of `VALIDITY` that expressions of the result may name."""
        return tuple(column for name in VALIDITY if (column := self._validity(name)) is not None)

    @cached_property
    def key_outputs(self) -> tuple[Output, ...]:
        """The columns of a result key of one's choice, in their order; empty if there is none."""
        if self.result_key is None or isinstance(self.result_key, str):
            return ()
        parsed = [parse_expression(text) for text in self.result_key]
        return tuple(Output(e.name or "", e.text, e.plain) for e in parsed)

    @model_validator(mode="after")
    def _sides_fit(self) -> ForeignKeySpec:
        count, keys = len(self.left.foreign_key), self.right.key_parts
        if count != len(keys):
            names = ", ".join(column.name for column in keys)
            raise problem(
                f"foreign_key has {count} component(s), the right key {len(keys)} ({names})",
                "left",
                "foreign_key",
            )
        for i, (text, key) in enumerate(zip(self.left.foreign_key, keys, strict=True)):
            expression = parse_expression(text)
            kind = self.left.type_of(expression.reads[0]) if expression.plain else None
            if kind is not None and kind.upper() != key.type.upper():
                raise problem(
                    f"foreign_key {text!r} is {kind}, the right key {key.name!r} is {key.type}; "
                    f"make the types equal, for example with CAST({text} AS {key.type})",
                    "left",
                    "foreign_key",
                    i,
                )
        texts = () if self.result_key is None or isinstance(self.result_key, str) else self.result_key
        self.check_named("result_key", texts)
        for i, text in enumerate(texts):
            reads = [self.resolve(read) for read in parse_expression(text).reads]
            others = [
                f"{side}.{column.name}"
                for side, column in reads
                if column.name not in (*self.side(side).key, *self.side(side).key_of_result)
            ]
            if others:
                raise problem(f"{text!r} reads {others[0]}, which is no key column", "result_key", i)
        if self.right.key_of_result:
            referred = {"foreign_key": (_as_result_key(self.left.foreign_key, keys),)}
            object.__setattr__(self, "left", self.left.model_copy(update=referred))
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> ForeignKeySpec:
        if self.left.valid_from is not None:
            raise problem("valid_from is of the right side, whose versions a left row sees", "left", "valid_from")
        if self.as_of_batch and self.left.column(BY_BATCH) is not None:
            raise problem("as_of: batch means the batch, and the left schema has a column 'batch': rename it", "as_of")
        if self.as_of is None or self.as_of_batch:
            if self.right.valid_from is not None:
                raise problem(
                    "valid_from goes with as_of, a SQL expression over the left columns", "right", "valid_from"
                )
        else:
            check_row_expression(self.left, self.as_of, "as_of")
            if self.right.is_snapshot:
                raise problem("a snapshot does not tell since when its rows hold; as_of: batch goes with it", "as_of")
            if self.right.valid_from is None:
                if self.right.sequence_by is None:
                    raise problem("valid_from is missing: since when does a version hold?", "right")
                valid = {"valid_from": self.right.sequence_by}
                object.__setattr__(self, "right", self.right.model_copy(update=valid))
        if self.history is not None and (self.as_of is None or self.as_of_batch):
            raise problem("history goes with as_of, a SQL expression over the left columns", "history")
        if self.as_of is not None and self.outer:
            raise problem("as_of goes with inner and left: which version of a right row would stand alone?", "as_of")
        return self

    @model_validator(mode="after")
    def _equal_values_are_alike_sensitive(self) -> ForeignKeySpec:
        """Makes foreign key and right key sensitive together: a foreign key has the values of the right key."""
        self.make_alike_sensitive(zip(self.left.foreign_key, (c.quoted for c in self.right.key_columns), strict=True))
        return self
