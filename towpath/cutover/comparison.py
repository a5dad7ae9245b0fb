"""The documents that the newest records are about, compared before the pause and in it: each look goes on at the last.

The first look takes in the newest records of the log; the next ones what came since the look before began, so that
the last, in the pause, has little left.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from towpath import state_files
from towpath.barrier import asking
from towpath.errors import TowpathError
from towpath.kafka.topics import Place
from towpath.log import recent_keys
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.verification import verdict_file
from towpath.verification.namespaces import pairs
from towpath.verification.origin import of_now
from towpath.verification.run import RecentVerification
from towpath.verification.verdict_file import Found, figures
from verifier import Difference, Namespace, Options, Verdict, Verification


class Red(TowpathError):
    """Something does not hold that must: the cutover is taken back."""


@dataclass(slots=True)
class Checked:
    it: Session
    looked_s: float = 0.0
    """How long the last look took."""
    _from: Mapping[Place, int] = field(default_factory=dict)

    def newest(self, records: int) -> int:
        """Compare what the newest so many records are about; how many documents those are. Raises `Red`."""
        return self._look(recent_keys.ids(self.it.pipeline, self.it.topics, records, None))

    def since(self) -> int:
        """What came since the last look began; of the whole log if there was none. Raises `Red`."""
        return self._look(recent_keys.ids_after(self.it.pipeline, self.it.topics, self._from))

    def _look(self, touched: Iterable[tuple[Namespace, bytes]]) -> int:
        began = time.monotonic()
        ends = {place: end for place, (_, end) in pipeline_ends(self.it.pipeline, self.it.topics).items()}
        compared = _compare(self.it, touched)
        self._from, self.looked_s = ends, time.monotonic() - began
        return compared


def _compare(it: Session, touched: Iterable[tuple[Namespace, bytes]]) -> int:
    with asking(it) as passed:
        verification = RecentVerification(it, touched, (), Options(), passed=passed)
        found = list(verification)
    _refuse(it, found, verification.verdict, "the newest records", f"repair {it.file}")
    return verification.verdict.compared


def quiet(it: Session) -> int:
    """Compare everything by the servers' hashes, while nobody writes; how many documents. Raises `Red`."""
    verification = Verification(
        it.pipeline.source_uri, it.pipeline.destination_uri, pairs(it.pipeline, ()), Options(quiet=True)
    )
    found = list(verification)
    _refuse(it, found, verification.verdict, "everything", f"repair {it.file}")
    return verification.verdict.compared


def _refuse(it: Session, found: list[Difference], verdict: Verdict, of: str, advice: str) -> None:
    """What differs is kept as the last verdict, which `repair` mends."""
    if found:
        destination = it.pipeline.renames.destination
        place = verdict_file.path(it.pipeline.name)
        with state_files.writing(place, verdict_file.turn(place)) as file:
            for one in found:
                file.write(verdict_file.line(verdict_file.as_json(one, destination(one.namespace))))
            file.write(verdict_file.line(figures(Found(verdict)) | {"of": of, "ddl": [], "only": []} | of_now(it)))
        shown = verdict_file.as_json(found[0], "")["id"]
        raise Red(f"{len(found):,} documents differ, such as {found[0].namespace} {shown}; run towpath {advice}")
    if verdict.trouble:
        raise Red(f"there is no verdict: {'; '.join(verdict.trouble)}; run towpath verify {it.file}")
