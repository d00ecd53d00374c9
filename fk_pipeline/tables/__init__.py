"""Delta tables: schemas, commits, the ledger and the lease."""
