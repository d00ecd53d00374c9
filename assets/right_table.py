"""Asset `right_table`: what Dagster says of it. `assets_of` makes the asset."""

DESCRIPTION = """\
The current row of every right key, tombstones kept, from `right_changelog`. **Last writer wins** by the source's
sequence, ties by batch. A partition is the rows that its batch changed last; the answers to their subscribers are due
there.
"""
