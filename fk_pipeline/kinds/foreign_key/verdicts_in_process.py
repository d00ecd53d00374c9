"""The verdict on every response as `verdicts.verdicts` returns it, read without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.conditions import ListTest
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import HALF_JOINED, JOINED
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.verdicts import decided_batches
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.rows_in_process import InProcessTable, Relation, RowRequest, gathered, leaving_errors


def verdicts(table: Callable[[str], InProcessTable | None], ledger: Ledger, spec: ForeignKeySpec) -> Relation | None:
    """Returns every verdict on the stored responses; None if there are no tables yet.

    Args:
        table: function that opens a table; None: it does not exist.
        ledger: has the decided batches.
        spec: the pipeline.

    Raises:
        LeftToSpark: only Spark can read them.
    """
    before = decided_batches(ledger)
    responses, stored = table(k.RESPONSES), table(k.VERDICTS)
    ledger.refresh()
    if responses is None or stored is None:
        if responses is None and stored is None:
            return None
        raise LeftToSpark("one of two tables does not exist")
    decided = [batch for batch, runs in decided_batches(ledger).items() if before.get(batch) == runs]
    keys = (s.BATCH, *k.pk_names(spec), s.CAUSE)
    if any(pa.types.is_floating(stored.schema.field(name).type) for name in keys):
        raise LeftToSpark("keys with floating-point numbers are compared by Spark")
    if {*stored.schema.names} != {*responses.schema.names, k.VERDICT}:
        raise LeftToSpark("the tables have other columns")
    return EveryVerdict(responses, stored, keys, pa.array([int(batch) for batch in decided], pa.int32()))


@dataclass(frozen=True)
class EveryVerdict:
    """The stored verdicts, and the implied ones of decided responses.

    Attributes:
        responses: the responses.
        stored: the stored verdicts.
        keys: the columns that identify a response.
        decided: the batches whose responses have verdicts.
    """

    responses: InProcessTable
    stored: InProcessTable
    keys: tuple[str, ...]
    decided: pa.Array

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stored verdicts."""
        return self.stored.schema

    def read(self, request: RowRequest) -> pa.Table:
        """Returns verdicts.

        Raises:
            LeftToSpark: only Spark can read them, or they are too many for the memory of this process.
        """
        with leaving_errors():
            return gathered(self._parts(request), self.schema, request, self.stored.sizes)

    def _parts(self, request: RowRequest) -> Iterator[pa.Table]:
        yield from self.stored.parts(request)
        known = self.stored.read(
            RowRequest(self.keys, [test for test in request.where if test.columns <= {*self.keys}])
        )
        of_verdicts = [test for test in request.where if k.VERDICT in test.columns]
        rows = replace(
            request,
            columns=self.responses.schema.names,
            where=[*(test for test in request.where if test not in of_verdicts), ListTest(s.BATCH, self.decided)],
            order=(),
            limit=None,
        )
        for part in self.responses.parts(rows):
            others = part.join(known, [*self.keys], join_type="left anti", use_threads=False) if len(known) else part
            implied = pc.if_else(pc.is_null(others[s.RIGHT_HASH]), HALF_JOINED, JOINED)
            decided = others.append_column(k.VERDICT, implied.cast(pa.string()))
            for test in of_verdicts:
                decided = decided.filter(test.mask(decided))
            yield decided.select(request.needed)
