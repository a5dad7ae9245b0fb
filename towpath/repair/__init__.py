"""Differences and dead letters, re-read at the source and sent through the log."""
