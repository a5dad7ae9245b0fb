"""What a bug report needs, in one archive: `write` gathers it, and `Redaction` removes what is secret."""

from towpath.doctor.collection import write
from towpath.doctor.redaction import Redaction

__all__ = ["Redaction", "write"]
