"""Mutation testing: `scripts/mutate`."""
