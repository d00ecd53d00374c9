"""Change data capture: landing files, their formats, the order of changes, and records that cannot be read."""
