"""The definition of the result of a kind of join, which `verify` compares with the stored result. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """The definition of the result, for `verify`: references to functions that share no code with the stages.

    Attributes:
        expected: function of tables (frames by name), pipeline and `isolating` (whether an expression of the pipeline
            file fails on a row) that returns the rows which the result must have: its key columns and the selected
            columns.
        pending: function of tables, due batches by stage, and pipeline that returns frames with the keys of the rows
            which due work may still change, each once in its frame; or with some of their key columns.
        unproved: function of tables, pipeline and ledger that returns the rows for which the inputs do not tell any
            more what is right: frames with keys as `pending` does, and SQL (BOOLEAN) over `difference` and `differing`
            (the columns in which a stale row differs): what such a row may differ in; None if there are none.
        counted: function of tables, pipeline, `isolating`, and a function from columns of a key to SQL (BOOLEAN,
            the key belongs to the verified share) that returns, per number of a `VerifyReport` which is
            about the inputs, a frame with as many rows.
        tolerance: by what share of their size two floating-point values of a column may differ: a sum depends in its
            last digits on the order in which it is computed.
        inexact: function of tables and pipeline that returns the other columns whose values depend on that order, as
            they are computed of such sums: a number may differ as much, or by one in its last digit, which may have
            been rounded; other values are not compared. None: there are none.
        outside: function of a Spark session, pipeline and ledger that returns further frames by name, of what is no
            table of the pipeline; the other functions find them among the tables.
        paired: function of rows, pipeline and `inexact` columns that returns the rows with the columns by which
            expected and stored rows are paired (`PAIRED_BY`), for a result whose definition tells no keys; None: by the
            key of the result.
        rows_of: the input each of whose current rows has at most one row in the result: the others are left out; empty:
            there is no such input.
        says: what the result equals, in words.
        recomputed: what the proof did to the inputs, in words.
    """

    expected: str
    pending: str
    counted: str
    unproved: str | None = None
    tolerance: float = 0
    inexact: str | None = None
    outside: str | None = None
    paired: str | None = None
    rows_of: str = ""
    says: str = "the join of the two tables"
    recomputed: str = "joined anew"


PAIRED_BY = ("_fk_content", "_fk_copy")
"""The columns of `Proof.paired`: a hash of the values; the number of a row among those with one hash."""
