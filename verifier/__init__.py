"""Are both sides the same? Usable alone: `from verifier import compare` with two PyMongo collections."""

from verifier.checking import check_ids
from verifier.compare import Comparison, compare
from verifier.differences import Difference, Different, Extra, Kind, Missing, Namespace, Pair
from verifier.errors import VerifierError
from verifier.recheck import Passed, Recheck

__all__ = [
    "Comparison",
    "Difference",
    "Different",
    "Extra",
    "Kind",
    "Missing",
    "Namespace",
    "Pair",
    "Passed",
    "Recheck",
    "VerifierError",
    "check_ids",
    "compare",
]
