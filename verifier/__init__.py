"""Are both sides the same? Usable alone, and knows MongoDB only.

`compare(source, destination)` takes two PyMongo collections, in this process. `Verification(source_uri,
destination_uri, pairs, options)` compares many namespaces with many processes: iterate over it for the differences,
then see its `verdict`. `check_ids` looks at documents whose ids are known.

    with MongoClient(one) as source, MongoClient(other) as destination:
        found = compare(source.shop.orders, destination.shop.orders)
        for difference in found.differences:
            print(difference.kind, bson.decode(difference.id))
"""

from verifier.collections import Comparison, check_ids, compare
from verifier.differences import Difference, Different, Extra, Kind, Missing, Namespace, Pair
from verifier.errors import ServerLost, Unsuitable, VerifierError, WorkerDied
from verifier.settlement import Passed, Recheck
from verifier.tally import Progress, Tally, Verdict
from verifier.verification import Options, Verification

__all__ = [
    "Comparison",
    "Difference",
    "Different",
    "Extra",
    "Kind",
    "Missing",
    "Namespace",
    "Options",
    "Pair",
    "Passed",
    "Progress",
    "Recheck",
    "ServerLost",
    "Tally",
    "Unsuitable",
    "Verdict",
    "Verification",
    "VerifierError",
    "WorkerDied",
    "check_ids",
    "compare",
]
