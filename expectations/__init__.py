"""Great Expectations suites of fk-pipeline over the tables of a join, and what makes Dagster asset checks of them.

`violations` computes with Spark what is wrong with a table, `suites` says what is expected and asks Great Expectations,
`checks` shows the answer in Dagster. Great Expectations takes seconds to import: only a running check does.
"""
