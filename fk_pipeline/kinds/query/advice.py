"""What `plan` tells of a query: its blocks, and what is not as it may seem: unread inputs, ORDER BY. No Spark."""

from __future__ import annotations

from dataclasses import replace

import sqlglot

from fk_pipeline.answers import Blocks
from fk_pipeline.blocks.refresh import block_tree
from fk_pipeline.blocks.refresh.advice import advice_on
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.spec.sql import DIALECT


def blocks(spec: QuerySpec) -> Blocks:
    """Returns the blocks of a query as a tree, the SQL of each over all rows, and what else a user must know."""
    sql = {
        block.name: block.of({alias.name: alias.relation for alias in block.aliases}) for block in spec.blocks.blocks
    }
    return replace(block_tree.blocks(spec), sql=sql, notes=advice(spec))


def advice(spec: QuerySpec) -> tuple[str, ...]:
    """Returns sentences about the blocks of a query."""
    sentences = [text for block in spec.blocks.blocks for text in advice_on(spec, block)]
    sentences += [f"the query does not read the input {name}, so no change of it makes work" for name in spec.unread]
    tree = sqlglot.parse_one(spec.sql, dialect=DIALECT)
    if tree.args.get("order") is not None and tree.args.get("limit") is None:
        sentences.append(
            "ORDER BY without LIMIT at the end has no effect, as the rows of a table have no order: leave it out, and "
            "order the rows where they are read (fk-pipeline show --order-by)"
        )
    return tuple(sentences)
