"""The protection of sensitive columns: keeps their values out of samples and messages (`docs/reference/privacy.md`).

A sample shows a token in place of a value. Equal values have equal tokens, so that rows can be distinguished and found
again in the checks of another table. A message of Spark, which may quote anything that it read, is not passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from fk_pipeline.environment.refusals import refusal
from fk_pipeline.errors import ConcealedError, FkPipelineError
from fk_pipeline.failures import kind_of, root_message
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.sql import text
from fk_pipeline.store.ledger import Ledger

DIGITS = 8
"""The number of hexadecimal digits of a value's hash that a token shows."""

LEFT_OUT = "its message is left out: it may quote sensitive values"
"""The text in place of a message."""

Mask = Callable[[DataFrame], DataFrame]
"""A function that replaces the sensitive values of rows."""


def mask_of(spec: PipelineSpec, ledger: Ledger, names: Collection[str]) -> Mask:
    """Returns a function that puts tokens in place of sensitive values.

    Rows of a pipeline without sensitive columns stay as they are.

    Args:
        spec: the pipeline.
        ledger: its ledger, whose identity is part of the tokens.
        names: the columns, and fields of structs at any depth, that have sensitive values. They become STRING. Binary
            values, such as the hashes of rows, become other, shorter ones: a row can be guessed from its hash.
    """
    if not spec.has_sensitive:
        return lambda rows: rows
    salt = text(ledger.identity)

    def hashed(sql: str) -> str:
        return f"LEFT(SHA2(CONCAT({salt}, {sql}), 256), {DIGITS})"

    def masked(sql: str, name: str, dtype: T.DataType) -> str:
        if name in names:
            return f"CONCAT('sensitive:', {hashed(f'CAST({sql} AS STRING)')})"
        if isinstance(dtype, T.BinaryType):
            return f"UNHEX({hashed(f'HEX({sql})')})"
        if isinstance(dtype, T.StructType):
            fields = [f"{masked(f'{sql}.{quote(f.name)}', f.name, f.dataType)} AS {quote(f.name)}" for f in dtype]
            return f"IF({sql} IS NULL, NULL, STRUCT({', '.join(fields)}))"
        return sql

    def mask(rows: DataFrame) -> DataFrame:
        columns = [f"{masked(quote(f.name), f.name, f.dataType)} AS {quote(f.name)}" for f in rows.schema]
        return rows.selectExpr(*columns)

    return mask


def message_of(error: Exception, spec: PipelineSpec) -> str:
    """Returns the problem in one sentence; for an error that may quote sensitive values only the kind of error."""
    if isinstance(error, FkPipelineError):
        return error.what
    if not spec.has_sensitive or isinstance(error, OSError):
        return root_message(error)
    return f"{kind_of(error)} ({LEFT_OUT})"


def cause_of(error: Exception, spec: PipelineSpec) -> Exception | None:
    """Returns the error as a cause for `raise ... from`; None if it may quote sensitive values."""
    return None if spec.has_sensitive and not isinstance(error, FkPipelineError) else error


@contextmanager
def concealing(spec: PipelineSpec) -> Iterator[None]:
    """Replaces errors that may quote sensitive values, and refusals of a file system; passes all others on.

    Raises:
        StorageError: the file system of the warehouse refused an operation.
        ConcealedError: in place of an error that may quote sensitive values, with the trace of that error.
    """
    try:
        yield
    except Exception as error:
        refused = refusal(error, spec.home)
        if refused is not None:
            raise refused from cause_of(error, spec)
        if not spec.has_sensitive or isinstance(error, (FkPipelineError, OSError)):
            raise
        raise ConcealedError(
            message_of(error, spec),
            where=f"pipeline {spec.name}",
            fix="to read it, where everybody who sees it may, take 'sensitive' out of the pipeline file and try again",
        ).with_traceback(error.__traceback__) from None
