"""Deploying a pipeline: the changes of topics and connectors, and all that `check` finds."""
