"""A Dagster project that had assets and resources of its own before it had a join."""
