"""Runs again what the guarantees rest on: faults with the history check, and plugins with a fault of their own.

The rounds are those of `scripts/soak`. Each planted fault is one wrong place in a copy of the Java sources, and a soak
of that plugin has to fail: what does not fail then shows what the rounds cannot see.
"""
