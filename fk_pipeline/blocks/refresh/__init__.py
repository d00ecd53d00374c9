"""Brings the table of a block from the versions in its last commit to the newest ones of what it reads."""
