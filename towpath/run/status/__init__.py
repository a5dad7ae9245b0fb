"""The status of a pipeline: collected once, shown as text or JSON."""
