"""`python -m towpath.cli`: the command line without its script."""

from towpath.cli import main

main()
