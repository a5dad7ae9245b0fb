"""What Kafka Connect runs, and the client of its REST API: configurations, control, answers. Knows Connect only."""
