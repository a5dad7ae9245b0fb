"""A pipeline as resources of Kubernetes: for Strimzi's operator, for `towpath run`, and for Prometheus' operator."""
