"""Apply the log to another destination, up to a point in time, or rebuild the pipeline's own destination."""
