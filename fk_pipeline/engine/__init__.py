"""The engine: runs the stages of a kind for batches, any number of times and in any order."""
