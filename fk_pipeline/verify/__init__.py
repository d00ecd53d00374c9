"""The batch re-join from the changelogs, and its comparison with the result."""
