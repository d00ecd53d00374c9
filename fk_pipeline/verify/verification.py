"""The verification: compares the result with what its definition says of the last writers, row by row.

A kind has its definition in SQL (`contract.Proof`), which shares no code with the stages beyond reading tables. A
difference that work still due explains is pending, not wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.contract import loaded
from fk_pipeline.export import json_rows
from fk_pipeline.failures import is_from_spark
from fk_pipeline.frames import join_by_key, marked
from fk_pipeline.identity import QUARANTINED
from fk_pipeline.privacy import mask_of
from fk_pipeline.proof import PAIRED_BY
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.settings import GUARDED, settings
from fk_pipeline.verify.report import VerifyReport

SLICES = 1_000_000
"""Number of slices into which a hash divides the keys; a share of the keys is a number of slices."""

DIFFERENCES_SHOWN = 20
"""The largest number of differing rows that a report shows."""


def compare(
    expected: DataFrame,
    result: DataFrame,
    keys: Sequence[str],
    names: Sequence[str],
    *,
    nullable: bool,
    tolerance: float = 0,
    inexact: Collection[str] = (),
) -> DataFrame:
    """Returns the rows that differ.

    They have `keys`, `difference` (missing, stale, unexpected), `expected`, `found`, and of a stale row `differing`:
    the names of the columns that differ.

    Args:
        expected: the rows that the result must have: its key columns and the columns to compare.
        result: the rows that it has.
        keys: the key columns.
        names: the columns to compare; `expected` and `found` are structs of them.
        nullable: whether a key column may be null.
        tolerance: as of `contract.Proof`.
        inexact: the columns that `contract.Proof.inexact` returns.
    """
    fields = {f.name: f.dataType for f in result.schema.fields}
    same_in = {name: _same(name, fields[name], tolerance, name in inexact) for name in names}

    def packed(frame: DataFrame, name: str) -> DataFrame:
        return frame.select(*map(quote, keys), F.struct(*map(quote, names)).alias(name))

    same = reduce(Column.__and__, same_in.values(), F.lit(True))
    both = join_by_key(packed(expected, "expected"), packed(result, "found"), keys, "full", nullable=nullable)
    both = both.withColumn("same", same)
    # If a key has several rows, one is compared (an equal one if there is any). The others are unexpected.
    of_its_key = F.row_number().over(Window.partitionBy(*map(quote, keys)).orderBy(F.col("same").desc()))
    both = both.withColumn("expected", F.when(of_its_key == 1, F.col("expected")))
    difference = (
        F.when(F.col("found").isNull(), "missing").when(F.col("expected").isNull(), "unexpected").when(~same, "stale")
    )
    differing = F.array_compact(F.array(*[F.when(~equal, F.lit(name)) for name, equal in same_in.items()]))
    rows = both.drop("same").withColumn("difference", difference).where("difference IS NOT NULL")
    return rows.withColumn("differing", differing)


def _same(name: str, dtype: T.DataType, tolerance: float, is_inexact: bool) -> Column:
    """Returns a BOOLEAN column: `expected` and `found` have the same value in the named column, or nearly the same."""
    expected, stored = (_comparable(F.col(side)[name], dtype) for side in ("expected", "found"))
    same = expected.eqNullSafe(stored)
    if is_inexact and not isinstance(dtype, T.NumericType):
        return F.lit(True)
    if tolerance and (is_inexact or isinstance(dtype, T.FloatType | T.DoubleType)):
        expected, stored = expected.cast("double"), stored.cast("double")
        larger, apart = F.greatest(F.abs(expected), F.abs(stored)), F.abs(expected - stored)
        near = (larger < F.lit(float("inf"))) & (apart <= F.greatest(larger * tolerance, F.lit(1.5 * _digit(dtype))))
        same |= F.coalesce(near, F.lit(False))  # NaN is not less than infinity
    return same


def _digit(dtype: T.DataType) -> float:
    """Returns by how much two numbers of a type differ that are one apart in the last digit; 0 of floating ones."""
    if isinstance(dtype, T.DecimalType):
        return 10.0**-dtype.scale
    return 1.0 if isinstance(dtype, T.IntegralType) else 0.0


def _comparable(value: Column, dtype: T.DataType) -> Column:
    """Returns a value that SQL can compare: a map becomes the array of its sorted entries."""
    return F.array_sort(F.map_entries(value)) if isinstance(dtype, T.MapType) else value


def verify(
    tables: Mapping[str, DataFrame],
    due: Mapping[str, Iterable[int]],
    spec: PipelineSpec,
    ledger: Ledger,
    share: float = 1.0,
) -> VerifyReport:
    """Compares the result with the rows that it must have by the definition of its kind.

    Args:
        tables: the tables of the pipeline by name (`Kind.proved`).
        due: the due batches per stage.
        spec: the pipeline.
        ledger: its ledger, for the tokens of sensitive values.
        share: the share of the keys of the result to compare, chosen by a hash; 1 for all.
    """
    states = [state for (stage, _), state in ledger.runs.stages.items() if stage in ledger.inputs]
    lines = sum(state.counts.get(QUARANTINED, 0) for state in states)
    verification = _Verification(spec, ledger, tables, due, share)
    try:
        if all(output.plain for output in spec.key_outputs):  # otherwise rows without a key must be found
            return replace(verification.report(isolating=False), quarantined_lines=lines)
    except Exception as error:
        if not is_from_spark(error) or not spec.computes:
            raise
    with settings(verification.result.sparkSession, GUARDED):
        return replace(verification.report(isolating=True), quarantined_lines=lines)


class _Verification:
    """One comparison of the result with its definition."""

    def __init__(
        self,
        spec: PipelineSpec,
        ledger: Ledger,
        tables: Mapping[str, DataFrame],
        due: Mapping[str, Iterable[int]],
        share: float,
    ) -> None:
        kind, proof = spec.definition, spec.definition.proof
        table = loaded(kind.keys)(spec, kind.result.name)
        result = tables[kind.result.name]
        outside = loaded(proof.outside)(result.sparkSession, spec, ledger) if proof.outside else {}
        self.spec, self.tables, self.share, self.proof = spec, {**tables, **outside}, share, proof
        self.due = {stage: [*batches] for stage, batches in due.items()}
        self.ledger = ledger
        self.keys, self.nullable = [*table.keys], bool(table.nullable_keys)
        # A hash of several columns leaves out those that are null.
        self.share_by = [quote(key) for key in table.keys if key not in table.nullable_keys] or [*map(quote, self.keys)]
        if proof.paired:
            self.keys, self.nullable, self.share_by = [*PAIRED_BY], False, [PAIRED_BY[0]]
        self.inexact: Collection[str] = loaded(proof.inexact)(self.tables, spec) if proof.inexact else ()
        self.mask = mask_of(spec, ledger, table.sensitive | spec.sensitive_outputs)
        self.result = self._paired(result).where(self._chosen(self.share_by))

    def _chosen(self, key: Iterable[str]) -> str:
        """SQL (BOOLEAN): a key, given as quoted columns, belongs to the share, which is the same in every run."""
        if self.share == 1:
            return "TRUE"
        return f"PMOD(XXHASH64({', '.join(key)}), {SLICES}) < {round(self.share * SLICES)}"

    def _paired(self, rows: DataFrame) -> DataFrame:
        """Returns rows with the columns by which they are paired (`Proof.paired`)."""
        paired: DataFrame = rows
        if self.proof.paired:
            paired = loaded(self.proof.paired)(rows, self.spec, self.inexact)
        return paired

    def report(self, isolating: bool) -> VerifyReport:
        """Returns the report.

        Args:
            isolating: whether rows on which an expression of the pipeline file fails are found; if not, Spark stops at
                such a row.
        """
        names = [output.name for output in self.spec.outputs]
        expected = loaded(self.proof.expected)(self.tables, self.spec, isolating)
        expected = self._paired(expected).where(self._chosen(self.share_by))
        work = sum(map(len, self.due.values()))
        differences = compare(
            expected,
            self.result,
            self.keys,
            names,
            nullable=self.nullable,
            tolerance=self.proof.tolerance,
            inexact=self.inexact,
        ).persist()
        try:
            pending = loaded(self.proof.pending)(self.tables, self.due, self.spec) if work else ()
            rows = marked(differences, "pending", pending, nullable=self.nullable)
            keys, excused = self._unproved()
            rows = marked(rows, "unproved", keys, nullable=self.nullable)
            of_closed = F.col("unproved") & F.expr(excused)
            why = F.when(F.col("pending"), "pending").when(of_closed, "unproved").otherwise("wrong")
            rows = rows.withColumn("why", why).drop("pending", "unproved")
            groups = rows.groupBy("difference", "why").count().collect()
            counts = {(row["difference"], row["why"]): row["count"] for row in groups}
            wrong = rows.where("why = 'wrong'").orderBy(*map(quote, self.keys)).limit(DIFFERENCES_SHOWN)
            return VerifyReport(
                missing=counts.get(("missing", "wrong"), 0),
                stale=counts.get(("stale", "wrong"), 0),
                unexpected=counts.get(("unexpected", "wrong"), 0),
                pending=sum(n for (_, why), n in counts.items() if why == "pending"),
                unproved=sum(n for (_, why), n in counts.items() if why == "unproved"),
                due=work,
                share=self.share,
                sample=tuple(self._sample(wrong)) if counts else (),
                **self._counts(isolating),
            )
        finally:
            differences.unpersist()

    def _unproved(self) -> tuple[Sequence[DataFrame], str]:
        """Returns the keys of rows for which the inputs do not tell what is right, and in what (`Proof.unproved`)."""
        if self.proof.unproved is None:
            return (), "FALSE"
        unproved: tuple[Sequence[DataFrame], str] = loaded(self.proof.unproved)(self.tables, self.spec, self.ledger)
        return unproved

    def _counts(self, isolating: bool) -> dict[str, int]:
        """Returns `rows` of a `VerifyReport` and the numbers that are about the inputs, counted in one job."""
        frames = {"rows": self.result, **loaded(self.proof.counted)(self.tables, self.spec, isolating, self._chosen)}
        counted = [frame.agg(F.count("*")).select(F.lit(name), "count(1)") for name, frame in frames.items()]
        return dict(map(tuple, reduce(DataFrame.union, counted).collect()))

    def _sample(self, wrong: DataFrame) -> Iterator[dict[str, Any]]:
        """Yields rows that differ in the form of `VerifyReport.sample`."""
        shown_as = loaded(self.spec.definition.shown_keys)(self.spec)
        fields = [field.name for field in wrong.select("found.*").schema.fields]
        rows = wrong.persist()  # the same order for all queries below
        try:
            seen = self.mask(rows)
            keys = json_rows(seen.select(*[F.col(quote(c)).alias(n) for c, n in zip(self.keys, shown_as, strict=True)]))
            both = [json_rows(seen.select(f"{side}.*")) for side in ("expected", "found")]
            labels = seen.select("difference", "differing").collect()
        finally:
            rows.unpersist()
        for key, expected, stored, (difference, names) in zip(keys, *both, labels, strict=True):
            shown = [name for name in fields if difference != "stale" or name in names]
            yield {
                "key": key,
                "difference": difference,
                "expected": None if difference == "unexpected" else {name: expected[name] for name in shown},
                "found": None if difference == "missing" else {name: stored[name] for name in shown},
            }
