"""Verification: joins both changelogs again as one batch and compares the outcome with the result."""
