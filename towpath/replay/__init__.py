"""The log written to a destination: to another one, up to a point in time, or the pipeline's own anew."""
