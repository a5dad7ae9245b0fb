"""Clients of MongoDB, Kafka and Connect, which know nothing of pipelines."""
