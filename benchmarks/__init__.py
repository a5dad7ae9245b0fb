"""What `scripts/bench`, `scripts/soak`, `scripts/evidence` and `scripts/mutate` run: each makes a report, no test."""
