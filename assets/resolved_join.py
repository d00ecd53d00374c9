"""The description of asset `resolved_join` in Dagster. `assets_of` creates the asset."""

DESCRIPTION = """\
The join. A response is applied only if **both of its hashes are still current**; whatever made it stale has queued its
own response. Every response gets one verdict: joined, half-joined, retracted, unchanged, stale left, stale right,
rewritten, half-quarantined, quarantined. The table carries batch and time of each row's last change and has the Delta
change data feed on.
"""
