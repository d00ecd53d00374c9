"""The engine: runs the stages of a kind for batches, as often and in whatever order they come."""
