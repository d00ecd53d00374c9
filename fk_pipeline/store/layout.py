"""The tables of one pipeline, with their types."""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.store.schemas import Table


@dataclass(frozen=True)
class Layout:
    """Every table of a pipeline, in the order in which its kind names them.

    Attributes:
        tables: the tables.
    """

    tables: tuple[Table, ...]

    def __getitem__(self, name: str) -> Table:
        """Returns a table by name.

        Raises:
            KeyError: there is no table of that name.
        """
        table = self.table(name)
        if table is None:
            raise KeyError(name)
        return table

    def table(self, name: str) -> Table | None:
        """Returns a table by name; None if there is none of that name."""
        return next((table for table in self.tables if table.name == name), None)

    def of(self, *names: str) -> list[Table]:
        """Returns tables by name, in the order of the names."""
        return [self[name] for name in names]
