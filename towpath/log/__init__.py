"""A pipeline's topics: records, positions, re-read requests, dead letters, their integrity; its connectors."""
