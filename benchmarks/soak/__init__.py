"""What breaks, when it breaks, and what must hold afterwards: `scripts/soak` for hours, `test_*` in the test suite.

`site` is the stack that is broken, `states` the moments, `faults` what breaks, `runs` one run from an empty pipeline to
the comparison of both sides, `hits` what was hit how often.
"""
