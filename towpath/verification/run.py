"""One verification: both sides compared, each difference handed on as it is proven, and the verdict kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from towpath import state_files
from towpath.errors import TowpathError
from towpath.passing import asking
from towpath.session import Session
from towpath.verification import full_verdict, origin, verdict_file
from towpath.verification.by_log import Asked
from towpath.verification.outcome import Examples, Found, counts
from towpath.verification.recent import RecentVerification
from verifier import Options, Pair, Passed, Progress, Verification, VerifierError

_EXAMPLES = 50  # differences that are kept in full


def run(
    it: Session,
    compared: Sequence[Pair],
    options: Options,
    asked: Asked,
    tell: Callable[[Progress], None],
    each: Callable[[str], None],
) -> tuple[Found, dict[str, Any]]:
    """Compare, and keep the verdict; what was found, and its counts.

    `tell` is given progress, `each` every difference as a line of JSON. Raises `TowpathError` when it cannot be
    finished.
    """
    examples, place = Examples(_EXAMPLES), verdict_file.path(it.pipeline.name)
    now, unknown = origin.look(it)  # first: what is made anew while it runs is not what the verdict is of
    with (
        nullcontext() if asked.alone else asking(it) as passed,
        state_files.writing(place, verdict_file.turn(place)) as file,
    ):

        def keep(line: str) -> None:
            file.write(line)
            each(line)

        verification = _verification(it, list(compared), options, asked, passed, tell)
        found = Found(verification.verdict, examples.found, asked.metadata)
        for line in lines(it, verification, examples, resumable=options.journal is not None):
            keep(line)
        for difference in asked.metadata.differences if asked.metadata else ():
            keep(verdict_file.line(difference.as_json()))
        last = counts(found) | {"of": asked.of, "ddl": list(asked.done), "only": list(asked.only), "id": asked.id}
        whole = last | {"origin": now and now.as_json()}
        file.write(verdict_file.line(whole))
    if asked.of == full_verdict.EVERYTHING:
        full_verdict.keep_and_say(it, whole, unknown)
    return found, last


def _verification(
    it: Session,
    compared: list[Pair],
    options: Options,
    asked: Asked,
    passed: Passed | None,
    tell: Callable[[Progress], None],
) -> Verification | RecentVerification:
    if asked.newest:
        return asked.newest.verification(it, options, passed)
    uris = it.pipeline.source_uri, it.pipeline.destination_uri
    return Verification(*uris, compared, options, passed=passed, tell=tell, say=it.say)


def lines(
    it: Session, verification: Verification | RecentVerification, examples: Examples, *, resumable: bool
) -> Iterator[str]:
    """A verdict as JSON: a line for each difference of documents as it is proven."""
    hint = "; `towpath verify --resume` goes on where this ended" if resumable else ""
    try:
        for found in verification:
            examples.add(found)
            yield verdict_file.line(verdict_file.as_json(found, it.pipeline.renames.destination(found.namespace)))
    except VerifierError as error:
        raise TowpathError(f"{error}{hint}") from error
    except KeyboardInterrupt:
        it.say(f"interrupted{hint}")
        raise
