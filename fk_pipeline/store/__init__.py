"""Delta tables: schemas, commits, the ledger and the lease."""

LEDGER_TABLES = ("files", "batches", "runs", "fingerprints", "rebuilds", "checks", "corrections", "folds", "fields")
"""The tables of the ledger; `entries.COLUMNS` has their columns."""
