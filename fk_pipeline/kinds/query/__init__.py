"""One SELECT over any number of tables, kept up to date (`kind: query`)."""
