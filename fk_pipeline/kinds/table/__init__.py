"""A table kept up to date from its changes."""
