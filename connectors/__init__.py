"""What runs in Kafka Connect and how it gets there: definitions, REST API, topics, deployment, status, records."""
