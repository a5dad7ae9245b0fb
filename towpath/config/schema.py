"""The schema of a pipeline file, section by section, and the combinations that are not valid."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from towpath.namespaces import is_pattern
from towpath.pipeline import CopyMethod, Mode, ReadPreference

#: Ten digits of weeks, in milliseconds, still fit into Kafka's 64-bit settings.
_LENGTH = r"[1-9][0-9]{0,9}[smhdw]"


def _pattern(text: str) -> str:
    if not is_pattern(text):
        raise ValueError(f"{text!r} is not a namespace pattern; write database.collection, with * for any characters")
    return text


def _matching(pattern: str, hint: str) -> Callable[[str], str]:
    """A validator for text that matches a regular expression as a whole."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is not {hint}")
        return text

    return check


_RETENTION = "a duration; write forever, or a number with s, m, h, d or w, such as 30d"
_TIME = "a length of time; write a number with s, m, h, d or w, such as 24h"
_TIMEOUT = "a timeout; write a number of up to four digits with s or m, such as 60s"
Pattern = Annotated[str, AfterValidator(_pattern)]
Duration = Annotated[str, AfterValidator(_matching(f"forever|{_LENGTH}", _RETENTION))]
Time = Annotated[str, AfterValidator(_matching(_LENGTH, _TIME))]
Timeout = Annotated[str, AfterValidator(_matching(r"[1-9][0-9]{0,3}[sm]", _TIMEOUT))]
#: Per second; 0 is no limit. Both fit into a Java int or long.
Documents = Annotated[int, Field(ge=0, lt=2**31)]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _texts_are_printable(cls, value: object) -> object:
        """Reject line breaks, NULs and the like: no value needs them, and each component reads them differently."""
        texts = [text for pair in value.items() for text in pair] if isinstance(value, dict) else value
        for text in texts if isinstance(texts, list) else [texts]:
            if isinstance(text, str) and not text.isprintable():
                raise ValueError(f"{text[:80]!r} holds a character that is not printable")
        return value


class Cluster(_Section):
    """One side. Exactly one of the three keys gives the URI."""

    uri: str | None = None
    uri_file: str | None = None
    uri_env: str | None = None

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(value is not None for value in (self.uri, self.uri_file, self.uri_env)) != 1:
            raise ValueError("give exactly one of uri, uri_file and uri_env")
        return self


class Collections(_Section):
    include: Annotated[list[Pattern], Field(min_length=1)]
    exclude: list[Pattern] = []
    rename: dict[str, str] = {}


class Kafka(_Section):
    bootstrap: str
    client: str | None = None
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1


class Connect(_Section):
    url: str
    bootstrap: str | None = None
    secrets: str | None = None
    user_file: str | None = None
    ca: str | None = None
    certificate: str | None = None


class Capture(_Section):
    copy_method: Annotated[CopyMethod | None, Field(alias="copy")] = None
    copy_threads: Annotated[int, Field(ge=1, le=64)] = 4
    read_preference: ReadPreference = "primary"
    documents_per_second: Documents = 0
    bytes_per_second: Bytes = 0
    whole_documents: list[Pattern] = []


class Write(_Section):
    concern: Annotated[str, Field(pattern=r"^([1-9][0-9]*|majority|[A-Za-z][\w-]*)(\+journal)?$")] = "majority"
    wtimeout: Timeout = "60s"
    tasks: Annotated[int, Field(ge=1, le=1000)] = 2
    fold: bool = True
    batch_records: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    batch_bytes: Annotated[int, Field(ge=1, le=256 * 1024 * 1024)] = 16 * 1024 * 1024


class Log(_Section):
    retention: Duration = "forever"
    compact: bool = False
    compaction_lag: Time = "24h"
    delete_retention: Time = "7d"


class Run(_Section):
    """What `towpath run` does besides supervising the connectors."""

    compact: bool | None = None
    """None: the value of [log] compact."""
    verify: bool = False
    repair: bool = True


class PipelineFile(_Section):
    """A whole pipeline file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]
    mode: Mode = "exactly-once"
    source: Cluster
    destination: Cluster
    collections: Collections
    kafka: Kafka
    connect: Connect
    capture: Capture = Capture()
    write: Write = Write()
    log: Log = Log()
    run: Run = Run()

    @model_validator(mode="after")
    def _copy_and_mode(self) -> Self:
        if self.mode == "exactly-once" and self.capture.copy_method == "debezium":
            raise ValueError(
                '[capture] copy = "debezium" does not go with mode = "exactly-once": Debezium\'s own copy overlaps the'
                " stream, so changes would be applied to documents that already have them; leave copy out (Towpath"
                ' copies each document at a known time), or set mode = "plain"'
            )
        if self.run.compact and not self.log.compact:
            raise ValueError(
                "[run] compact = true needs a compacted log, and [log] compact is false; set that to true, or leave"
                " this out: the default is the value of [log] compact"
            )
        if self.log.compact and self.mode == "plain" and self.capture.copy_method != "towpath":
            raise ValueError(
                "[log] compact = true needs re-read documents, which Debezium's own connector does not support;"
                ' set mode = "exactly-once", or [capture] copy = "towpath"'
            )
        return self
