"""Dagster's webserver and daemon and a warm Spark server on one machine; and what to do after it went down."""
