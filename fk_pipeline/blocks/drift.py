"""Finds fields of source rows that the pipeline file does not declare, and declared columns that rows lack.

A new field of a side is reported once and recorded in the ledger, so that the batches that may have it are known if the
schema declares it later (`evolution.py`). A column that rows lack is reported if older batches had it.
`docs/reference/schema-changes.md` is the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame

from fk_pipeline.blocks.changelog import row_expressions
from fk_pipeline.blocks.lost import GONE, Lacking, NamesIn, gone, lost, placing_columns
from fk_pipeline.blocks.unsent import ROWS_WITHOUT, had_before, lacking, unproven, warn
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.cdc.records import EVENT
from fk_pipeline.errors import SchemaChangedError
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.deletes import may_say_deletes, names_operation
from fk_pipeline.spec.formats import PLAIN
from fk_pipeline.spec.sql import parse_expression, text
from fk_pipeline.stage_input import Counts
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.fields import MOST_FIELDS_KEPT, NOT_COMPARED

DRIFT = "drift"
"""Column of records (STRUCT): `new`, fields that their side never had, and `lacking`, columns that a row lacks; both
null if the fields of a row are unknown. The column is null if there is no difference."""

NEW_FIELDS = "rows with new fields"

_MOST_DIFFERENCES = 100_000
"""The number of differences, one per batch and name, from which on no names are kept."""

_ROW = f"kind = '{EVENT}' AND NOT deleted"
_NO_DRIFT = f"CAST(NULL AS STRUCT<new: ARRAY<STRING>, lacking: ARRAY<STRING>>) AS {DRIFT}"
_UNKNOWN = "?"


Differences = Sequence[tuple[int, str, int]]
"""Batch, name and number of records: `+NAME` is a new field, `-NAME` a missing column, `?` unknown fields."""


class Watch:
    """Compares the rows of one side with its schema, in one run of its changelog stage.

    Args:
        spec: the pipeline.
        ledger: the ledger with the fields seen before.
        stage: the changelog stage.
    """

    def __init__(self, spec: PipelineSpec, ledger: Ledger, stage: str) -> None:
        self.spec, self.ledger, self.stage, self.side = spec, ledger, stage, ledger.inputs[stage]
        self._first_look = ledger.fields.looked_since(self.side) is None
        self._placing = placing_columns(spec, self.side)
        self._declared = [c.name for c in spec.side(self.side).as_sent.columns]
        self._known = set(ledger.fields.known(self.side)) - {*self._declared}
        self._learned: set[str] = set()
        self._unproven = unproven(spec, ledger, stage)
        self._compares = False

    def learn(self, parsed: DataFrame) -> None:
        """Treats the fields of any one row as known, before very many rows are examined for the first time."""
        if self._first_look and self._may_compare(parsed):
            row = parsed.where(f"{_ROW} AND fields IS NOT NULL").select("fields").first()
            self._learned = {*row["fields"]} - {*self._declared} if row else set()

    def marked(self, parsed: DataFrame) -> DataFrame:
        """Returns records as a format returns them, with `DRIFT` and `lost.GONE` in place of `fields`."""
        columns, self._compares = [name for name in parsed.columns if name != "fields"], self._may_compare(parsed)
        if not self._compares:
            return parsed.selectExpr(*columns, _NO_DRIFT, f"CAST(NULL AS STRING) AS {GONE}")
        side = self.spec.side(self.side)
        values = [c.name for c in side.value_columns] if compares(self.spec, side) else self._unproven
        new = f"ARRAY_EXCEPT(fields, {_names([*self._declared, *sorted(self._known | self._learned)])})"
        lacking = f"ARRAY_EXCEPT({_names(values)}, fields)"
        # No lambdas: with them Spark would not compile the whole projection.
        nothing = f"NOT ({_ROW}) OR (SIZE({new}) = 0 AND SIZE({lacking}) = 0)"
        drift = f"IF({nothing}, NULL, STRUCT({new} AS new, {lacking} AS lacking))"
        return parsed.selectExpr(*columns, f"{drift} AS {DRIFT}", f"{gone(self._placing)} AS {GONE}")

    def warnings(self) -> list[str]:
        """Returns warnings about fields that seem to mark deleted rows but are read by nothing; call `report` before.

        There are none for a side that defines deletes, by `op_column`, by `delete_when` or by its format.
        """
        side = self.spec.side(self.side)
        if side.op_column or side.delete_when or not (side.format in PLAIN or ":" in side.format):
            return []
        read = {column.name for column in self.spec.chosen(self.side)}
        read |= {path[0] for sql in row_expressions(self.spec, self.side) for path in parse_expression(sql).reads}
        declared = [name for name in self._declared if name not in {*read, *side.key}]
        unread = [name for name in [*declared, *sorted(self._known | self._learned)] if may_say_deletes(name)]
        return [
            f"{self.side} rows have a field {name!r}, and nothing reads it: if it says that a row is deleted, "
            f"such rows stay in the result. Say so in the pipeline file: {self._setting_for(name)}; "
            "if it does not, delete_when: FALSE"
            for name in unread
        ]

    def lost(self, counted: Lacking, differences: Differences, rows: Mapping[int, int], names: NamesIn) -> list[str]:
        """Returns warnings about columns that rows lack and that place a row (see `lost.lost`), or that none ever had.

        Call `report` after it: the names that `report` records are not new to the next run, so a batch that is refused
        here must not get so far.

        Args:
            counted: per batch, the numbers of rows that lack columns which place a row.
            differences: the differences, per batch and name.
            rows: per batch, the number of rows that were compared.
            names: returns names of fields in rows of a batch.

        Raises:
            SchemaChangedError: there are any, and `schema_changes` is `fail`.
        """
        sends_all = compares(self.spec, self.spec.side(self.side))

        def undeclared(batch: int, column: str, has_it: bool) -> set[str]:
            return {*names(batch, column, has_it)} - {*self._declared}

        warnings = lost(self._placing, counted, undeclared, self.side, self._known, sends_all=sends_all)
        compared = {batch: number for batch, number in rows.items() if number}
        for column in self._unproven if compared and self._compares else ():
            if column not in warnings and _without(differences, column) == compared:
                warnings[column] = warn(self.side, column, compared, undeclared(min(compared), column, False))
        if warnings and self.spec.schema_changes == "fail":
            self._refuse([*warnings.values()])
        return [*warnings.values()]

    def _setting_for(self, name: str) -> str:
        """Returns the setting that reads a field as the mark of deleted rows."""
        if names_operation(name):
            return f"{self.side}.op_column: {name}"
        return f"{self.side}.delete_when, a condition over {name}, declared in the schema"

    def _may_compare(self, parsed: DataFrame) -> bool:
        """Returns whether the pipeline file allows the comparison, and the format provides the fields of rows."""
        return self.spec.schema_changes != "ignore" and "fields" in parsed.columns

    def report(self, differences: Differences, rows: Mapping[int, int], counts: Counts) -> list[str]:
        """Counts the rows that differ and records new fields.

        Args:
            differences: the differences, per batch and name.
            rows: per batch, the number of rows that were compared.
            counts: the counts per batch, to which this method adds.

        Returns:
            Notes for people.

        Raises:
            SchemaChangedError: there are notes, and `schema_changes` is `fail`.
        """
        if not self._compares or len(differences) == _MOST_DIFFERENCES:
            self._not_compared(counts)
            return []
        new: dict[str, dict[int, int]] = {}
        notes, sends_all = [], compares(self.spec, self.spec.side(self.side))
        for batch, name, number in differences:
            if name == _UNKNOWN:
                counts[batch][NOT_COMPARED] = number
            elif name.startswith("+"):
                new.setdefault(name[1:], {})[batch] = number
            elif sends_all or number == rows[batch]:
                counts[batch][f"{ROWS_WITHOUT}{name[1:]}"] = number
        counted = {batch: lacking(batch_counts) for batch, batch_counts in counts.items()}
        for batch, column, had, number in had_before(self.ledger, self.stage, counted):
            notes.append(f"batch {batch}: {number} {self.side} row(s) have no column {column}, which batch {had} had")
        for name, batches in () if self._first_look else new.items():
            for batch, number in batches.items():
                counts[batch][NEW_FIELDS] = max(number, counts[batch].get(NEW_FIELDS, 0))
            notes.append(f"batch {min(batches)}: {self.side} rows have a field that is not in the schema: {name}")
        if notes and self.spec.schema_changes == "fail":
            self._refuse(notes)
        if len(self._known) + len(self._learned) + len(new) > MOST_FIELDS_KEPT:  # the source uses values as names
            self._not_compared(counts)
        else:
            self._learned |= {*new}
            self.ledger.fields.record(self.side, self._learned)
        return notes

    @staticmethod
    def differences(drifted: DataFrame | None) -> Differences:
        """Returns the differences of the records that differ (`batch` and `DRIFT`; None if there are none)."""
        if drifted is None:
            return []
        new = f"IF({DRIFT}.new IS NULL, ARRAY('{_UNKNOWN}'), TRANSFORM({DRIFT}.new, _name -> CONCAT('+', _name)))"
        lacking = f"TRANSFORM(COALESCE({DRIFT}.lacking, {_names([])}), _name -> CONCAT('-', _name))"
        names = drifted.selectExpr("batch", f"EXPLODE(CONCAT({new}, {lacking})) AS name")
        each = names.groupBy("batch", "name").count()
        return [(row[0], row[1], row[2]) for row in each.orderBy("batch", "name").limit(_MOST_DIFFERENCES).collect()]

    @staticmethod
    def _not_compared(counts: Counts) -> None:
        for batch_counts in counts.values():
            batch_counts[NOT_COMPARED] = batch_counts.get("events", 0)

    def _refuse(self, notes: list[str]) -> None:
        others = f", and {len(notes) - 1} more" if len(notes) > 1 else ""
        raise SchemaChangedError(
            f"the source has changed: {notes[0]}{others}",
            where=f"pipeline {self.spec.name}",
            why="schema_changes is 'fail': nothing of the batch was applied",
            fix="run once with schema_changes: evolve, which takes the rows as they are, and columns that you add to "
            f"{self.side}.schema in place",
        )


def compares(spec: PipelineSpec, side: SideSpec) -> bool:
    """Returns whether rows are checked for missing columns: the pipeline file allows it and the format sends all."""
    return spec.schema_changes != "ignore" and bool(getattr(format_of(side), "sends_all", False))


def _without(differences: Differences, column: str) -> dict[int, int]:
    """Returns, per batch, the number of rows without a column."""
    return {batch: number for batch, name, number in differences if name == f"-{column}"}


def _names(names: Iterable[str]) -> str:
    """SQL (ARRAY<STRING>): the names."""
    return f"CAST(ARRAY({', '.join(map(text, names))}) AS ARRAY<STRING>)"
