"""Are two MongoDB deployments the same, byte for byte? A library of its own; `docs/verifier.md` describes it.

`compare(source, destination)` compares two PyMongo collections in this process. `Verification(source_uri,
destination_uri, pairs, options)` compares many namespaces with several processes: iterate over it for the differences,
then read its `verdict`. `check_ids` compares only the documents whose `_id`s are known. All of them only read.

    with MongoClient(source_uri) as source, MongoClient(destination_uri) as destination:
        comparison = compare(source.shop.orders, destination.shop.orders)
        for difference in comparison.differences:
            print(difference.kind, bson.decode(difference.id))
"""

from towpath_verifier.collections import Comparison, check_ids, compare
from towpath_verifier.differences import Difference, Different, Extra, Kind, Missing, Namespace, Pair
from towpath_verifier.errors import ServerLost, Unsuitable, VerifierError, WorkerDied
from towpath_verifier.settlement import Passed, Recheck
from towpath_verifier.tally import Progress, Tally, Verdict
from towpath_verifier.verification import Options, Verification

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
