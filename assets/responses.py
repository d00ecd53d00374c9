"""Asset `responses`: what Dagster says of it. `assets_of` makes the asset."""

DESCRIPTION = """\
The answers that a batch owes: to each subscription that asks for one, and to every subscriber of a right row that
changed. Only keys and both hashes, no payload. **One answer per change**: only a left key never seen before may stay
without one.
"""
