"""What a change of a right row would touch, found by the stored rows, without Spark."""

from __future__ import annotations

import re

import pyarrow as pa

from fk_pipeline.arrow_text import as_numbers
from fk_pipeline.blocks.keyed_in_process import Tables, typed_key, under
from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.conditions import NotTest, NullTest, RowTest
from fk_pipeline.conditions_of_sql import is_value
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec.keys import parse_key
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.rows_in_process import RowRequest


def seen_in_process(
    table: Tables, spec: ForeignKeySpec, ledger: Ledger, right_key: str, since: str | None
) -> tuple[JsonRow, bool, int]:
    """Returns a right key, whether its row exists, and the number of left rows that refer to it.

    Args:
        table: opens a stored table.
        spec: the pipeline.
        ledger: its ledger.
        right_key: the key as text.
        since: with `as_of`, the time since which a version of it holds: then whether this version exists, and the
            number of left rows that see it or would see it; None: any version.

    Raises:
        LeftToSpark: it is not certain that Spark finds the same.
        UsageError: a text is not a value of its type.
    """
    rights, alive = table(k.RIGHT_TABLE), NotTest(NullTest(s.HASH))
    tests, key = typed_key(parse_key(right_key, spec.right, "--right-key"), spec.right, rights.schema)
    living: list[RowTest] = [*tests, alive]
    referring = [*under(tests, k.fk), alive]
    subscriptions = table(k.SUBSCRIPTION_STORE)
    if since is None:
        exists = len(rights.read(RowRequest([s.HASH], living, limit=1))) > 0
        return key, exists, len(subscriptions.read(RowRequest([s.HASH], referring)))
    if ledger.folds.horizon(Stage.RIGHT_TABLE) is not None:
        raise LeftToSpark("what is told of times that are history, Spark knows")
    at = _number(since, rights.schema.field(s.VALID_FROM).type)
    begins, times = (
        as_numbers(rows.read(RowRequest([name], where)))[name].to_pylist()
        for rows, name, where in ((rights, s.VALID_FROM, living), (subscriptions, k.AS_OF, referring))
    )
    following = min((begin for begin in begins if begin > at), default=None)
    seeing = [time for time in times if time is not None and time >= at and (following is None or time < following)]
    return key, at in begins, len(seeing)


def _number(since: str, dtype: pa.DataType) -> int:
    """Returns a time, given as text, as a number: of a timestamp its microseconds since 1970.

    Raises:
        LeftToSpark: it is not certain which time it is.
        UsageError: it is none.
    """
    if pa.types.is_integer(dtype) and re.search(r"[A-Za-z]", since):
        raise UsageError(f"--from: {since!r} is no {'int' if dtype == pa.int32() else 'bigint'}")
    bound = is_value(s.VALID_FROM, since, dtype).bound
    if not isinstance(bound, int):
        raise LeftToSpark("which time is meant, Spark knows")
    return bound
