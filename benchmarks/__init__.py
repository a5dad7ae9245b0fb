"""What `scripts/bench`, `scripts/soak` and `scripts/mutate` run: each a command with a report, and no test."""
