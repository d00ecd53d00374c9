"""What the rows of a source have that the pipeline file does not declare, and the other way round.

A field that a side never had before is told once and kept in the ledger, so that a schema that declares it later knows
which batches may have it (`evolution.py`). A column that rows lack is told when older batches had it.
`docs/reference/schema-changes.md` is the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.cdc.records import EVENT
from fk_pipeline.errors import SchemaChangedError
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.sql import text
from fk_pipeline.stages.access import Counts
from fk_pipeline.tables.fields import MOST_FIELDS
from fk_pipeline.tables.ledger import Ledger

DRIFT = "drift"
"""Column of records (ARRAY<STRING>): `+` and the name of a field that is new, `-` and that of a column that is not
there; null where there is neither."""

NOT_COMPARED = "rows not compared with the schema"
NEW_FIELDS = "rows with new fields"
LACKING = "rows without column "

_MOST_FOUND = 100_000
"""Differences of batches that are looked at; with more, no names are kept."""

_COMPARED = f"kind = '{EVENT}' AND NOT deleted AND fields IS NOT NULL"


class Watch:
    """Compares the rows of one side with its schema, in one run of its changelog stage.

    Args:
        spec: the pipeline.
        ledger: what was seen before.
        stage: the changelog stage.
        side: its side.
    """

    def __init__(self, spec: PipelineSpec, ledger: Ledger, stage: str, side: Side) -> None:
        self.spec, self.ledger, self.stage, self.side = spec, ledger, stage, side
        self.first_look = ledger.fields.looked_since(side) is None
        self._declared = [c.name for c in spec.side(side).columns]
        self._known = set(ledger.fields.known(side)) - {*self._declared}
        self._learned: set[str] = set()
        self._compares = False

    def learn(self, parsed: DataFrame) -> None:
        """Takes the fields of some row for known, before very many rows are looked at for the first time."""
        if self.first_look and self._may_compare(parsed):
            row = parsed.where(_COMPARED).select("fields").first()
            self._learned = {*row["fields"]} - {*self._declared} if row else set()

    def marked(self, parsed: DataFrame) -> DataFrame:
        """Records as a format returns them, with `DRIFT` in place of `fields`."""
        kept, self._compares = [name for name in parsed.columns if name != "fields"], self._may_compare(parsed)
        if not self._compares:
            return parsed.selectExpr(*kept, f"CAST(NULL AS ARRAY<STRING>) AS {DRIFT}")
        known = _names([*self._declared, *sorted(self._known | self._learned)])
        found = [f"TRANSFORM(ARRAY_EXCEPT(fields, {known}), _name -> CONCAT('+', _name))"]
        side = self.spec.side(self.side)
        if compares(self.spec, side):
            values = _names(c.name for c in side.value_columns)
            found.append(f"TRANSFORM(ARRAY_EXCEPT({values}, fields), _name -> CONCAT('-', _name))")
        drift = f"GET(FILTER(ARRAY(CONCAT({', '.join(found)})), _found -> SIZE(_found) > 0), 0)"
        return parsed.selectExpr(*kept, f"IF({_COMPARED}, {drift}, NULL) AS {DRIFT}")

    def _may_compare(self, parsed: DataFrame) -> bool:
        """The pipeline file wants it, and the format tells the fields."""
        return self.spec.schema_changes != "ignore" and "fields" in parsed.columns

    def report(self, drifted: DataFrame | None, counts: Counts) -> list[str]:
        """Counts what differs and records what is new.

        Args:
            drifted: the records that differ, `batch` and `DRIFT`; None if there are none.
            counts: per batch; added to.

        Returns:
            What a person should know.

        Raises:
            SchemaChangedError: the pipeline file wants it.
        """
        if not self._compares:
            self._not_compared(counts)
            return []
        new: dict[str, dict[int, int]] = {}
        notes = []
        for batch, name, number in self._found(drifted):
            if name.startswith("+"):
                new.setdefault(name[1:], {})[batch] = number
                continue
            counts[batch][f"{LACKING}{name[1:]}"] = number
            had = _last_with(self.ledger, self.stage, name[1:], batch)
            if had is not None:
                rows = f"{number} {self.side} row(s) have"
                notes.append(f"batch {batch}: {rows} no column {name[1:]}, which batch {had} had")
        for name, batches in () if self.first_look else new.items():
            for batch, number in batches.items():
                counts[batch][NEW_FIELDS] = max(number, counts[batch].get(NEW_FIELDS, 0))
            notes.append(f"batch {min(batches)}: {self.side} rows have a field that is not in the schema: {name}")
        if notes and self.spec.schema_changes == "fail":
            self._refuse(notes)
        if len(self._known) + len(self._learned) + len(new) > MOST_FIELDS:  # the names are values
            self._not_compared(counts)
        else:
            self.ledger.record_fields(self.side, self._learned | {*new})
        return notes

    @staticmethod
    def _found(drifted: DataFrame | None) -> list[tuple[int, str, int]]:
        """Batch, name with its sign, and number of records."""
        if drifted is None:
            return []
        each = drifted.selectExpr("batch", f"EXPLODE({DRIFT}) AS name").groupBy("batch", "name").count()
        return [(row[0], row[1], row[2]) for row in each.orderBy("batch", "name").limit(_MOST_FOUND).collect()]

    @staticmethod
    def _not_compared(counts: Counts) -> None:
        for found in counts.values():
            found[NOT_COMPARED] = found.get("events", 0)

    def _refuse(self, notes: list[str]) -> None:
        others = f", and {len(notes) - 1} more" if len(notes) > 1 else ""
        raise SchemaChangedError(
            f"the source has changed: {notes[0]}{others}",
            where=f"pipeline {self.spec.name}",
            why="schema_changes is 'fail': nothing of the batch was applied",
            fix=f"declare the field, or take the column out of {self.side}.schema; or run once with schema_changes: "
            "evolve, which takes the rows as they are",
        )


def compares(spec: PipelineSpec, side: SideSpec) -> bool:
    """Whether it is looked at if rows have all columns: the pipeline file wants it, and the format sends all."""
    return spec.schema_changes != "ignore" and bool(getattr(format_of(side), "sends_all", False))


def missed(ledger: Ledger, stage: str, batches: Iterable[int]) -> Iterator[tuple[int, str, int, int]]:
    """Columns that rows of some batches lack though older batches had them.

    Args:
        ledger: of the pipeline.
        stage: a changelog stage.
        batches: which batches.

    Yields:
        The batch, the column, the newest older batch whose rows have it, and how many rows lack it.
    """
    for batch in batches:
        for name, number in ledger.state(stage, batch).counts.items():
            column = name.removeprefix(LACKING)
            if column != name and (had := _last_with(ledger, stage, column, batch)) is not None:
                yield batch, column, had, number


def _last_with(ledger: Ledger, stage: str, column: str, batch: int) -> int | None:
    """The newest older batch whose rows all have a column; None also where nobody looked."""
    for older in reversed([b for b in ledger.batches if b < batch]):
        counts = ledger.state(stage, older).counts
        if counts.get("rows", 0) > counts.get("tombstones", 0) + counts.get("truncates", 0):
            if NOT_COMPARED in counts:
                return None
            if f"{LACKING}{column}" not in counts:
                return int(older)
    return None


def _names(names: Iterable[str]) -> str:
    """SQL (ARRAY<STRING>)."""
    return f"CAST(ARRAY({', '.join(map(text, names))}) AS ARRAY<STRING>)"
