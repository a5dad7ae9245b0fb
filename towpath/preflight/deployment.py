"""What `deploy` would do now, and what it would refuse: asked of the deployment itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from towpath.deploy.deployment import Deployment
from towpath.deploy.inventory import look
from towpath.errors import TowpathError
from towpath.finding import Finding, ok, refusal
from towpath.session import Session
from towpath.text import counted

_SUBJECT = "deploy"


def check(it: Session, held: Collection[str] = ()) -> Iterator[Finding]:
    """Plan a deployment, and change nothing."""
    try:
        changes = Deployment(it.pipeline, look(it.pipeline), it.connect, it.topics, held).plan()
    except TowpathError as failure:
        yield refusal(_SUBJECT, failure)
        return
    if not changes:
        yield ok(_SUBJECT, "nothing to change: all is as the file says")
    else:
        yield ok(_SUBJECT, f"would make {counted(len(changes), 'change')}; `towpath deploy --dry-run` lists them")
