"""Joins of two streams within a span of time."""
