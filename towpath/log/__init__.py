"""A pipeline's topics: records, positions, re-read requests, dead letters, whether they are complete; its connectors."""
