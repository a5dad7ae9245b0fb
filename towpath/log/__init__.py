"""The contents of a pipeline's topics: records, positions, re-read requests, dead letters; whether it is complete."""
