"""What Towpath's own connectors cost beside the stock ones, measured in pairs on one machine, in alternation.

Run by `scripts/bench`. Times swing by a factor of two from run to run, so only runs of one call compare, and CPU
seconds per document compare better than documents a second.
"""
