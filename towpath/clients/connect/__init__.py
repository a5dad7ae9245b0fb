"""The client of the REST API of Kafka Connect: configurations, control, answers. Knows Connect only."""
