"""The pipeline file: its schema, how it is read, its template, and the files of credentials that it names."""
