"""Towpath replicates MongoDB collections through Kafka. `ARCHITECTURE.md` shows the packages."""
