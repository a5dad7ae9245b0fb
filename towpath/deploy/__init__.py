"""Deploying a pipeline: what is there, what must hold, which topics and connectors change."""
