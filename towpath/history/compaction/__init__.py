"""Compaction: updates in the log are protected from Kafka's log cleaner, then compaction is enabled."""
