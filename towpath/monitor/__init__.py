"""What `towpath run --listen` and `towpath monitor` serve over HTTP: the live page, the API and the metrics."""
