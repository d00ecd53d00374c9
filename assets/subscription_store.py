"""The description of asset `subscription_store` in Dagster. `assets_of` creates the asset."""

DESCRIPTION = """\
Which right key every left row subscribes to, and the hash of the left row (KIP-213's subscription send and receive).
**Owner rule**: a batch changes a row only if it brings a newer version, or no longer brings the one it owned. An update
that leaves the hash equal is silent.
"""
