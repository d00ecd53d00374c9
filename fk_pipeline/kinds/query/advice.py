"""What a user must know of a query that is not as it may seem: blocks, unread inputs, ORDER BY. No Spark."""

from __future__ import annotations

import sqlglot

from fk_pipeline.blocks.refresh.advice import advice_on
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.spec.sql import DIALECT


def advice(spec: QuerySpec) -> tuple[str, ...]:
    """Returns sentences about the blocks of a query."""
    found = [text for block in spec.blocks.blocks for text in advice_on(spec, block)]
    found += [f"the query does not read the input {name}, so no change of it makes work" for name in spec.unread]
    tree = sqlglot.parse_one(spec.sql, dialect=DIALECT)
    if tree.args.get("order") is not None and tree.args.get("limit") is None:
        found.append(
            "ORDER BY without LIMIT at the end has no effect, as the rows of a table have no order: leave it out, and "
            "order the rows where they are read (fk-pipeline show --order-by)"
        )
    return tuple(found)
