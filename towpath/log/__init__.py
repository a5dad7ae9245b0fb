"""What lies in the topics of a pipeline: records, positions, re-read requests, dead letters; whether it is whole."""
