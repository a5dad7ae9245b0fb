"""Deploying a pipeline: the inventory, the preconditions, and the changes to topics and connectors."""
