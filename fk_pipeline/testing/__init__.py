"""A user's own cases of a pipeline: rows that are given, and the rows that the result must then have."""
