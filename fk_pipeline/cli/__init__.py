"""The command `fk-pipeline`."""
