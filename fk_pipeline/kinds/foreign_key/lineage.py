"""The origin of the columns of each stage's main table."""

from __future__ import annotations

from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s


def lineage(spec: ForeignKeySpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come.

    The stages that read landing files have none.
    """
    pks = [(k.pk(c.name), c.name) for c in spec.left.key_columns]
    fks = [k.fk(c.name) for c in spec.right.key_columns]
    origins: dict[str, list[tuple[str, str]]] = {}
    if stage == Stage.SUBSCRIPTION_STORE:
        origins = {pk: [(Stage.LEFT_CHANGELOG, column)] for pk, column in pks}
        for name, sql in zip(fks, spec.left.foreign_key, strict=True):
            columns = [spec.left.column(path[0]) for path in parse_expression(sql).reads]
            origins[name] = [(Stage.LEFT_CHANGELOG, column.name) for column in columns if column is not None]
        if spec.as_of is not None:
            times = [] if spec.as_of_batch else [path[0] for path in parse_expression(spec.as_of).reads]
            read = [source.name for name in times if (source := spec.left.column(name)) is not None]
            origins[k.AS_OF] = [(Stage.LEFT_CHANGELOG, name) for name in read or [s.BATCH]]
    elif stage == Stage.RESPONSES:
        origins = {name: [(Stage.SUBSCRIPTION_STORE, name)] for name in (*dict(pks), *k.subscribed(spec))}
        origins |= {s.LEFT_HASH: [(Stage.SUBSCRIPTION_STORE, s.HASH)], s.RIGHT_HASH: [(Stage.RIGHT_TABLE, s.HASH)]}
    elif stage == Stage.RESOLVED_JOIN:
        origins = {name: [(Stage.RESPONSES, name)] for name in (*dict(pks), *fks, s.LEFT_HASH, s.RIGHT_HASH)}
        if spec.outer:  # the rows of right rows alone have their keys and hashes from the right table
            keys = {name: column.name for name, column in zip(fks, spec.right.key_columns, strict=True)}
            origins[s.RIGHT_HASH].append((Stage.RIGHT_TABLE, s.HASH))
            for name, column in keys.items():
                origins[name].append((Stage.RIGHT_TABLE, column))
            alones = zip(k.unmatched_columns(spec), keys.values(), strict=False)
            origins |= {name: [(Stage.RIGHT_TABLE, column)] for (name, _), column in alones}
        for output in spec.key_outputs:
            of_keys = dict.fromkeys(spec.resolve(read) for read in parse_expression(output.sql).reads)
            named = [k.pk(c.name) if side == Side.LEFT else k.fk(c.name) for side, c in of_keys]
            origins[k.chosen(output.name)] = [(Stage.RESPONSES, name) for name in named]
        for output in spec.outputs:
            reads = [spec.resolve(read) for read in parse_expression(output.sql).reads]
            validity = {c.name: s.VALID_FROM for c in spec.columns_of_validity}
            origins[output.name] = [
                (spec.definition.input(side).stage, validity.get(c.name, c.name) if side == Side.RIGHT else c.name)
                for side, c in dict.fromkeys(reads)
            ]
    return origins
