"""How many examples Hypothesis makes: few and always the same ones; with HYPOTHESIS_PROFILE=nightly, many random ones.

A failure shows the example, and a line to repeat it (`@reproduce_failure`, or `--hypothesis-seed` for random ones).
"""

import os

from hypothesis import settings

settings.register_profile("fast", derandomize=True, max_examples=60, deadline=None, database=None, print_blob=True)
settings.register_profile("nightly", max_examples=5_000, deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
