"""The blocks that every kind of join is built of: changelogs, the owner rule, hashes, unavailable values."""
