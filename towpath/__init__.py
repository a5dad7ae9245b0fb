"""The command line `towpath`: one verb, one small file."""
