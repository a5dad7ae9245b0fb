"""Are two MongoDB deployments the same, byte for byte? A separate library; `docs/verifier.md` describes it.

`Verification` compares many namespaces with several processes: iterate over it for the differences, then read its
`verdict`. `Rereads` compares only the documents whose `_id`s are known. `Schemas` compares options, views and indexes.
All of them only read. What is not named here is private.
"""

from towpath_verifier.descriptions import Described, concurrently, described, feature_version, unlike
from towpath_verifier.differences import Difference, Kind, Namespace, Pair, Shown, extended_json, readable
from towpath_verifier.mask import Mask, key_id
from towpath_verifier.metadata import AS_IT_IS, RELAXED, RELAXED_IN_PLACE, MetadataDifference, Schemas, omitted
from towpath_verifier.plan import Options
from towpath_verifier.progress import SCREENED, UNORDERED, Journal, Progress, Tally, Verdict
from towpath_verifier.proof import Outcome, Same, Unresolved, token_time
from towpath_verifier.raw import ARRAY, DOCUMENT, Element, Key, elements, id_document, id_key
from towpath_verifier.reads import (
    Client,
    ServerLost,
    Unsuitable,
    VerifierError,
    WorkerDied,
    brief,
    by_ids,
    chunks,
    cluster_time,
    stale_member,
    with_retries,
)
from towpath_verifier.repair_commands import Command
from towpath_verifier.rereads import Passed, Recheck, Rereads
from towpath_verifier.verification import Verification
from towpath_verifier.workers import started_ahead

__all__ = [
    "ARRAY",
    "AS_IT_IS",
    "DOCUMENT",
    "RELAXED",
    "RELAXED_IN_PLACE",
    "SCREENED",
    "UNORDERED",
    "Client",
    "Command",
    "Described",
    "Difference",
    "Element",
    "Journal",
    "Key",
    "Kind",
    "Mask",
    "MetadataDifference",
    "Namespace",
    "Options",
    "Outcome",
    "Pair",
    "Passed",
    "Progress",
    "Recheck",
    "Rereads",
    "Same",
    "Schemas",
    "ServerLost",
    "Shown",
    "Tally",
    "Unresolved",
    "Unsuitable",
    "Verdict",
    "Verification",
    "VerifierError",
    "WorkerDied",
    "brief",
    "by_ids",
    "chunks",
    "cluster_time",
    "concurrently",
    "described",
    "elements",
    "extended_json",
    "feature_version",
    "id_document",
    "id_key",
    "key_id",
    "omitted",
    "readable",
    "stale_member",
    "started_ahead",
    "token_time",
    "unlike",
    "with_retries",
]
