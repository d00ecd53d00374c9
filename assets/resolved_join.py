"""Asset `resolved_join`: what Dagster says of it. `assets_of` makes the asset."""

DESCRIPTION = """\
The join. A response is applied only if **both of its hashes are still current**; whatever made it stale has queued its
own response. Every response gets one verdict: joined, half-joined, retracted, unchanged, stale left, stale right,
rewritten, half-quarantined, quarantined. The table carries batch and time of each row's last change and has the Delta
change data feed on.
"""
