"""The description of asset `responses` in Dagster. `assets_of` creates the asset."""

DESCRIPTION = """\
The responses that are due to a batch: to each subscription that asks for one, and to every subscriber of a right row
that changed. Only keys and both hashes, no payload. **One response per change**: only a left key never seen before may
stay without one.
"""
