"""Are both sides the same? Usable alone: `from verifier import compare` with two PyMongo collections."""

from verifier.compare import Comparison, Difference, Different, Extra, Missing, compare

__all__ = ["Comparison", "Difference", "Different", "Extra", "Missing", "compare"]
