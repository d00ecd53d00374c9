"""Great Expectations suites over the tables of a join, and the bridge that turns a suite into Dagster asset checks.

`violations` computes with Spark what is wrong with a table, `suites` says what is expected and asks Great Expectations,
`checks` shows the answer in Dagster. Great Expectations takes seconds to import: only a running check does.
"""
