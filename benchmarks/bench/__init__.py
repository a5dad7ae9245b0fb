"""What Towpath costs beside the stock connectors: both in turn on one machine. See `docs/benchmarks/README.md`.

Times swing by a factor of two from run to run, so only runs of one call compare, and CPU per document compares better
than documents a second.
"""
