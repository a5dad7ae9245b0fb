"""The verdict on a pipeline: full, followed, of what changed last; what it belongs to and where it is kept."""
