"""The report of pipelines: one document of facts from ledger and tables, read without Spark, and a page made of it."""
