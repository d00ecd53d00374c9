"""The look-ups of the checks of the foreign-key join: by the left key, and through the index of subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fk_pipeline.blocks.horizon import sql_of
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.rights import USUAL, Ends, truncates_in
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.unwritten import unwritten_batches
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.reader import ABSENT


def pks_of(spec: ForeignKeySpec) -> dict[str, str]:
    """Returns the columns of the left key in the state tables: each name maps to itself."""
    return {name: name for name in k.pk_names(spec)}


def unwritten_of(reader: CheckReader) -> list[int]:
    """Returns the batches of the check whose responses are not written: checks of the result then look at all rows."""
    return unwritten_batches(reader.ledger, reader.known)


def ends_of(reader: CheckReader) -> Ends:
    """Returns what may have ended versions of right rows, with `as_of`, besides the next version of their key."""
    spec, log = reader.spec, reader.spec.definition.input(Side.RIGHT)
    if spec.as_of is not None and not spec.as_of_batch:
        return Ends(horizon=sql_of(reader.ledger.folds.horizon(log.stage)))
    if spec.as_of is None or reader.history.may_be_truncated(log.stage) is False:
        return USUAL
    truncates = truncates_in(reader.whole(log.log), spec)
    return Ends(truncates=truncates, changed=reader.history.truncated(log.stage))


def versions_of(reader: CheckReader, rows: RowSet, keys: Mapping[str, str], columns: Sequence[str]) -> Materialised:
    """Returns columns of the right rows with some keys; with `as_of` of all their versions.

    Args:
        reader: the tables.
        rows: rows with the keys.
        keys: per key column of the right table, its name in `rows`.
        columns: the columns.
    """
    versions = reader.with_keys(k.RIGHT_TABLE, rows, keys).select(*map(quote, columns))
    return reader.at_hand(versions, rows.at_most if reader.spec.as_of is None else None)


def subscribers_of(reader: CheckReader, rights: RowSet, columns: Sequence[str]) -> Materialised:
    """Returns columns of the rows of the subscription store that refer to some right rows; maybe of more rows."""
    fks, at_most = {fk: key for key, fk in k.right_keys(reader.spec).items()}, None
    indexed = reader.versions[k.SUBSCRIBERS] != ABSENT and reader.about(k.SUBSCRIBERS).rows
    if reader.index_fits and indexed:
        rows, at_most = reader.through_index(k.SUBSCRIBERS, k.SUBSCRIPTION_STORE, rights, fks, columns)
    else:
        rows = reader.with_keys(k.SUBSCRIPTION_STORE, rights, fks)
    return reader.at_hand(rows.select(*map(quote, columns)), at_most)
