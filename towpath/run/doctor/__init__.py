"""What a bug report needs, in one archive: `write` gathers it, and `Redaction` removes what is secret."""

from towpath.run.doctor.collection import write
from towpath.run.doctor.redaction import Redaction

__all__ = ["Redaction", "write"]
