"""The description of asset `right_table` in Dagster. `assets_of` creates the asset."""

DESCRIPTION = """\
The current row of every right key, tombstones kept, from `right_changelog`. **Last writer wins** by the source's
sequence, ties by batch. A partition is the rows that its batch changed last; the responses to their subscribers are due
there.
"""
