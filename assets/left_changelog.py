"""The description of asset `left_changelog` in Dagster. `assets_of` creates the asset."""

DESCRIPTION = """\
The left table's change stream, batch by batch: the last valid event per key, with the whole row, its 128-bit hash
and the source's own sequence. Late events are kept; the subscription store decides who wins. Lines that cannot be read
go to `quarantine` with file, line, reason and raw text.
"""
