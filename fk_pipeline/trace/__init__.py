"""Runs recorded cases, event by event, through the reference of the protocol or through the Spark stages."""
