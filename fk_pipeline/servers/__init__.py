"""Dagster's webserver and daemon and a warm Spark server on one machine, and the recovery after the machine failed."""
