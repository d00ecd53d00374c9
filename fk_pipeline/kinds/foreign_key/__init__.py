"""The foreign-key join of two tables (KIP-213): a left row refers to one right row by a key that is not its own."""
