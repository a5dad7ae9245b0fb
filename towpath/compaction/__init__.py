"""Small logs: updates protected from Kafka's cleaner, compaction switched on."""
