"""Verify a pipeline: fully, continuously, or its newest changes; what a verdict belongs to, and where it is stored."""
