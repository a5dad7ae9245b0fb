"""The pipeline file: its schema, loading and template, and the credential files that it names."""
