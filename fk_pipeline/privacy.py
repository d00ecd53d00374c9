"""What keeps the values of sensitive columns out of samples and messages (`docs/reference/privacy.md`).

A sample shows a token in place of a value: the same one for the same value, so that rows can be told apart and found
again in the checks of another table. A message of Spark's, which may quote anything that it read, is not passed on.
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
"""Of the hash of a value, in hex: what a token shows of it."""

LEFT_OUT = "its message is left out: it may quote sensitive values"
"""What is said in place of a message."""

Mask = Callable[[DataFrame], DataFrame]
"""Makes rows fit to be shown."""


def mask_of(spec: PipelineSpec, ledger: Ledger, names: Collection[str]) -> Mask:
    """Puts tokens in place of sensitive values. Rows of a pipeline without sensitive columns stay as they are.

    Args:
        spec: the pipeline.
        ledger: its ledger, whose identity the tokens are made with.
        names: the columns, and fields of structs at any depth, that hold sensitive values. They become STRING. Binary
            values, such as the hashes of rows, become other, shorter ones: a row can be guessed from its hash.
    """
    if not spec.has_sensitive:
        return lambda rows: rows
    salt = text(ledger.identity)

    def hashed(sql: str) -> str:
        return f"LEFT(SHA2(CONCAT({salt}, {sql}), 256), {DIGITS})"

    def masked(sql: str, name: str, kind: T.DataType) -> str:
        if name in names:
            return f"CONCAT('sensitive:', {hashed(f'CAST({sql} AS STRING)')})"
        if isinstance(kind, T.BinaryType):
            return f"UNHEX({hashed(f'HEX({sql})')})"
        if isinstance(kind, T.StructType):
            fields = [f"{masked(f'{sql}.{quote(f.name)}', f.name, f.dataType)} AS {quote(f.name)}" for f in kind]
            return f"IF({sql} IS NULL, NULL, STRUCT({', '.join(fields)}))"
        return sql

    def mask(rows: DataFrame) -> DataFrame:
        columns = [f"{masked(quote(f.name), f.name, f.dataType)} AS {quote(f.name)}" for f in rows.schema]
        return rows.selectExpr(*columns)

    return mask


def message_of(error: Exception, spec: PipelineSpec) -> str:
    """What went wrong, in one sentence; of an error that may quote sensitive values only which one it is."""
    if isinstance(error, FkPipelineError):
        return error.what
    if not spec.has_sensitive or isinstance(error, OSError):
        return root_message(error)
    return f"{kind_of(error)} ({LEFT_OUT})"


def cause_of(error: Exception, spec: PipelineSpec) -> Exception | None:
    """What another error may name as its cause, for `raise ... from`."""
    return None if spec.has_sensitive and not isinstance(error, FkPipelineError) else error


@contextmanager
def concealing(spec: PipelineSpec) -> Iterator[None]:
    """Passes errors on, but for those that may quote sensitive values, and those of a file system that refuses.

    Raises:
        StorageError: the file system of the warehouse did not take something.
        ConcealedError: in their place; its trace is theirs.
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
