"""Kafka, and nothing else of ours: client settings, topics, ranges of offsets, transactions that stay open."""
