"""The current rows of an input as a table that blocks read: its columns, where they come from, which are sensitive.

One row per key ever seen, narrow: the key; what the kind derives of the row (`Input.derives`), the number that it makes
of the time (`Input.numbered`), the version, and those columns of the source that the result is made of. The stage is
`blocks.state.current_effects`, the rules are those of `rules.current`. No Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fk_pipeline.blocks.select.lineage import reads_of
from fk_pipeline.contract import loaded
from fk_pipeline.identity import Side
from fk_pipeline.spec import Column, SideSpec
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import MERGED, Table, skippable, typed_columns, version_columns


@dataclass(frozen=True)
class CurrentRows:
    """The table of one input.

    Attributes:
        name: its name, and that of its stage.
        log: the changelog from which it comes.
        log_stage: the stage that writes the changelog.
        side: the input.
        source: the input as the pipeline file declares it.
        derived: per column that the kind derives of a row, its SQL over the source.
        times: those of them that are times.
        number: the column with a number that is made of the time; empty: none.
        payload: the columns of the source that the result is made of and that are not part of the key.
    """

    name: str
    log: str
    log_stage: str
    side: Side
    source: SideSpec
    derived: Mapping[str, str]
    times: tuple[str, ...]
    number: str
    payload: tuple[Column, ...]

    @classmethod
    def of(cls, spec: Any, side: Side) -> CurrentRows:
        """Returns the table of an input of a pipeline (`PipelineSpec`) whose kind has one."""
        own, source = spec.definition.input(side), spec.side(side)
        derived = own.derives(spec)
        times = tuple(time for time in own.times if time in derived)
        keys = {column.name for column in source.key_columns}
        payload = tuple(column for column in spec.selected[side] if column.name not in keys)
        name, number = spec.definition.state_of(side).name, own.numbered if times else ""
        return cls(name, own.log, own.stage, side, source, derived, times, number, payload)

    @property
    def keys(self) -> list[str]:
        """The key columns, which have their names in every table."""
        return [column.name for column in self.source.key_columns]

    @property
    def placing(self) -> list[str]:
        """The columns that tell which rows of the result a row belongs to."""
        return [*self.derived, *([self.number] if self.number else [])]

    @property
    def made(self) -> dict[str, str]:
        """Per column of `placing`, the SQL over the source of what it is made of."""
        return {**self.derived, **({self.number: self.derived[self.times[0]]} if self.number else {})}

    def table(self, sequence: str, types: Mapping[str, str], secret: frozenset[str]) -> Table:
        """Returns the table.

        Args:
            sequence: the type of the order of versions.
            types: per derived column its type.
            secret: the names of sensitive columns, if it has these.
        """
        keys, number = typed_columns(self.source.key_columns), ((self.number, "BIGINT"),) if self.number else ()
        derived = tuple((name, types[name]) for name in self.derived)
        columns = (*keys, *derived, *number, *version_columns(sequence), *typed_columns(self.payload))
        placed = (*self.times, *(name for name, _ in number))
        return Table(
            self.name,
            columns,
            skip_by=(s.APPLIED_IN, s.OWNER, *placed, *skippable(keys)),
            keys=tuple(self.keys),
            properties={**MERGED, s.CHANGE_FEED: "true"},
            sensitive=secret & {name for name, _ in columns},
        )

    def lineage(self) -> dict[str, list[tuple[str, str]]]:
        """Returns, per column, the (changelog, column) pairs that it is made of."""
        origins = {column.name: [(self.log, column.name)] for column in (*self.source.key_columns, *self.payload)}
        for name, sql in self.made.items():
            read = [self.source.column(path[0]) for path in parse_expression(sql).reads]
            origins[name] = [(self.log, column.name) for column in read if column is not None]
        return origins


def current_tables(spec: Any) -> Iterator[CurrentRows]:
    """Yields the table of each input of a pipeline."""
    for kind_input in spec.definition.inputs:
        yield CurrentRows.of(spec, kind_input.name)


def secret_columns(spec: Any, *sides: Side) -> frozenset[str]:
    """Returns the names of the columns, and of fields of their structs, with sensitive values.

    These are columns that a table has of its input, or of the result beside those that the user selects.

    Args:
        spec: the pipeline.
        sides: the inputs whose sensitive columns the tables have under the names of the source.
    """
    secret = {name for side in sides for name in spec.side(side).sensitive}
    for table in current_tables(spec):
        made = table.made
        if table.source.sequence_by is not None:
            made["value"] = table.source.sequence_by  # the field of the order of versions
        for name, sql in made.items():
            if any(table.source.is_sensitive(path[0]) for path in parse_expression(sql).reads):
                secret.add(name)
    return frozenset(secret)


def lineage(spec: Any, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come.

    The stages that read landing files have none.
    """
    tables = {table.name: table for table in current_tables(spec)}
    if stage in tables:
        return tables[stage].lineage()
    if stage != spec.definition.result_stage:
        return {}
    block = spec.block_of(stage, loaded(spec.definition.declared_layout)(spec).__getitem__)
    reads = {column: reads_of(block, column) for column in block.columns}
    return {column: sorted((str(relation), name) for relation, name in some) for column, some in reads.items()}
