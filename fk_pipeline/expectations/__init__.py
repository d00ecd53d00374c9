"""Great Expectations suites of fk-pipeline over the tables of a join, and the Dagster asset checks made of them.

`violations` finds the violations in a table with Spark, `suites` defines the expectations, `validation` evaluates
them with Great Expectations, `checks` shows the results in Dagster. Great Expectations takes seconds to import: only a
running check imports it.
"""
