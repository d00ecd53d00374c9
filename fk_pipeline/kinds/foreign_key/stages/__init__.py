"""The stages of the foreign-key join: functions from a reader to effects, which describe what the tables must hold.

The computation of a stage is in the modules that it calls (`responses`, `resolved_join`, ... beside this package):
DataFrames in, DataFrames out. A module here decides which rows its stage needs, and which shortcuts are exact (ADR
0008, 0020, 0021).

The docstring of each module says in one line of relational algebra what its stage computes for batches n: `S ⋈ R`
joins, `S ⟕ R` also has the rows of S without a match, `S ▷ R` has only those, and `+` is the rows of both.
"""
