"""The service: connectors restarted, children started again, hanging transactions ended."""
