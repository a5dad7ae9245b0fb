"""The schema of a pipeline file, section by section, and the combinations that are not valid."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ByteSize, ConfigDict, Field, field_validator, model_validator

from towpath.config.namespaces import RESERVED, is_pattern
from towpath.config.pipeline import CopyMethod, CopyOrder, DropPolicy, Mode, Owner, ReadPreference

#: Ten digits of weeks, in milliseconds, still fit into Kafka's 64-bit settings.
_LENGTH = r"[1-9][0-9]{0,9}[smhdw]"


def _pattern(text: str) -> str:
    if not is_pattern(text):
        raise ValueError(f"{text!r} is not a namespace pattern; write database.collection, with * for any characters")
    return text


def _included(text: str) -> str:
    database = text.partition(".")[0]
    if database in RESERVED:
        whose = "Towpath keeps its positions in it" if database == "towpath" else "it belongs to the server"
        raise ValueError(f"{text!r} cannot be replicated: the database {database} is never captured, as {whose}")
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
#: Host and port; an IPv6 address in brackets. Port 0 takes any free one. Empty: nothing listens.
LISTEN = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}|"
#: With it as their beginning, services and labels of Kubernetes have less than 64 characters.
KUBERNETES_NAME = r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?"
Pattern = Annotated[str, AfterValidator(_pattern)]
Duration = Annotated[str, AfterValidator(_matching(f"forever|{_LENGTH}", _RETENTION))]
Time = Annotated[str, AfterValidator(_matching(_LENGTH, _TIME))]
Timeout = Annotated[str, AfterValidator(_matching(r"[1-9][0-9]{0,3}[sm]", _TIMEOUT))]
#: Per second; 0 is no limit. Both fit into a Java int or long.
Documents = Annotated[int, Field(ge=0, lt=2**31)]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]
#: A number of bytes, or text such as 64MiB.
Size = Annotated[ByteSize, Field(ge=0, lt=2**63)]


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
    """The URI of a replica set, MongoDB 5.0 or later. If it holds a password, keep the file private (`chmod 600`), or
    use one of the other two."""
    uri_file: str | None = None
    """A file that holds the URI, and that only you can read."""
    uri_env: str | None = None
    """An environment variable that holds the URI."""

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(value is not None for value in (self.uri, self.uri_file, self.uri_env)) != 1:
            raise ValueError("give exactly one of uri, uri_file and uri_env")
        return self


class Collections(_Section):
    include: Annotated[list[Annotated[Pattern, AfterValidator(_included)]], Field(min_length=1)]
    """Namespaces `database.collection`; `*` stands for any characters. Matching collections that are created later are
    included."""
    exclude: list[Pattern] = []
    """Namespaces and patterns to leave out."""
    rename: dict[str, str] = {}
    """`"db.old" = "db.new"`: another name at the destination."""


class Kafka(_Section):
    bootstrap: str
    """Addresses of brokers."""
    client: str | None = None
    """A file of Kafka's client settings, such as the login."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Of each topic; never changes."""
    replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Of the topics; -1: the broker's default."""


class Connect(_Section):
    url: str
    """The REST API of one worker."""
    bootstrap: str | None = None
    """Kafka's address as the workers see it. Default: `bootstrap` in `[kafka]`."""
    secrets: str | None = None
    """Folder of the file with both URIs, which `deploy` writes; the same path on the workers. Default:
    `~/.local/state/towpath/secrets`."""
    user_file: str | None = None
    """A file with `user:password` for the REST API."""
    ca: str | None = None
    """The CA of an `https` URL. Default: the CAs of this machine."""
    certificate: str | None = None
    """Client certificate and key in one file."""
    owner: Owner = "towpath"
    """Who creates and changes the connectors. `towpath`: `deploy` does. `strimzi`: Strimzi's operator does, from the
    resources that `manifests` prints; `deploy` and `check` compare."""


class Capture(_Section):
    copy_method: Annotated[CopyMethod | None, Field(alias="copy")] = None
    """The initial copy. `towpath`: in ranges (the default of `exactly-once`). `none`: no copy, from now on.
    `debezium`: only in `plain`, and its default. Never changes."""
    copy_tasks: Annotated[int, Field(ge=1, le=1000)] = 1
    """Tasks that share the initial copy, on as many workers as there are; the first of them streams. First upgrade
    every worker."""
    copy_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Ranges that each task copies in parallel."""
    copy_order: CopyOrder = "auto"
    """`id`: the copy reads by `_id`. `natural`: in the order in which the source stores documents. `auto`: natural
    where `_id`s are random and the collection is larger than half of the source's cache."""
    read_preference: ReadPreference = "primary"
    """Of the copy. `secondary` and the others reduce load on the primary. The copy waits for a member that does not
    have a collection yet."""
    documents_per_second: Documents = 0
    """A limit of the copy, of all its tasks together; 0: none."""
    bytes_per_second: Bytes = 0
    """As `documents_per_second`, in bytes."""
    whole_documents: list[Pattern] = []
    """Collections whose updates are looked up as whole documents, because names of their fields hold a dot or begin
    with `$`."""
    splice_cache: Size | None = None
    """Memory for hashes of arrays' elements, a number of bytes or a text such as `64MiB`; with them a capped or edited
    array travels as its edits. 0: as whole arrays. Default: 64 MiB in `exactly-once`, always 0 in `plain`."""


class Write(_Section):
    concern: Annotated[str, Field(pattern=r"^([1-9][0-9]*|majority|[A-Za-z][\w-]*)(\+journal)?$")] = "majority"
    """`1`, `majority`, `majority+journal`, …"""
    wtimeout: Timeout = "60s"
    """How long a transaction waits for the concern before it is retried (`exactly-once`)."""
    tasks: Annotated[int, Field(ge=1, le=1000)] = 2
    """Writers in parallel, which share the partitions of all topics evenly."""
    fold: bool = True
    """The changes of one document in a batch become one write (`exactly-once`)."""
    batch_records: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    """One transaction takes the available records, up to this many (`exactly-once`)."""
    batch_bytes: Annotated[int, Field(ge=1, le=256 * 1024 * 1024)] = 16 * 1024 * 1024
    """One transaction takes the available records, up to this size; a larger record gets a transaction of its own
    (`exactly-once`)."""


class Log(_Section):
    retention: Duration = "forever"
    """`forever`, or a duration such as `30d`: older records are deleted."""
    compact: bool = False
    """`true`: Kafka's log cleaner may compact the log."""
    compaction_lag: Time = "24h"
    """The cleaner never drops younger records."""
    delete_retention: Time = "7d"
    """How long deletes stay after that."""


class Run(_Section):
    """What `towpath run` does besides supervising the connectors."""

    compact: bool | None = None
    """`run` does what `compact` does. Default: the value of `[log] compact`."""
    verify: bool = False
    """`run` does what `verify --follow` does."""
    repair: bool = True
    """`run` repairs dead letters once the destination accepts them (`exactly-once`)."""
    listen: Annotated[str, AfterValidator(_matching(LISTEN, "an address; write host:port, such as 127.0.0.1:9300"))] = (
        ""
    )
    """Address of the page, the API and the metrics of `run`, such as `127.0.0.1:9300`; without it, nothing listens."""
    token_file: str | None = None
    """A file with the token for commands, and for readers on other machines; only its owner may read it."""
    read_only: bool = False
    """`true`: no commands, and no token to read."""
    certificate: str | None = None
    """For TLS: the certificate chain, in PEM."""
    key: str | None = None
    """Its key, in PEM. Default: in the file of `certificate`."""
    hosts: list[str] = []
    """Further names by which requests may address it."""

    @model_validator(mode="after")
    def _listens(self) -> Self:
        options = (self.token_file, self.certificate, self.key, self.read_only, self.hosts)
        if any(options) and not self.listen:
            raise ValueError("token_file, read_only, certificate, key and hosts belong to listen; set that too")
        return self


class Ddl(_Section):
    """Schema changes at the source, where this section is there."""

    apply: bool = True
    """Schema changes go through the log, and are made at the destination (`exactly-once`). `false`: as without the
    section."""
    drop: DropPolicy = "hold"
    """`hold`: a drop of a collection waits for `ddl --apply` or `ddl --skip`. `apply`: it is made at once."""


class PipelineFile(_Section):
    """A whole pipeline file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]
    """Prefix of topics and connectors; letters, digits and `-`. Never changes."""
    mode: Mode = "exactly-once"
    """`exactly-once`: each change once, in transactions at the destination. `plain`: stock connectors, at least once.
    Never changes."""
    source: Cluster
    destination: Cluster
    collections: Collections
    kafka: Kafka
    connect: Connect
    capture: Capture = Capture()
    write: Write = Write()
    log: Log = Log()
    run: Run = Run()
    ddl: Ddl = Ddl(apply=False)

    @model_validator(mode="after")
    def _name_for_kubernetes(self) -> Self:
        if self.connect.owner == "strimzi" and not re.fullmatch(KUBERNETES_NAME, self.name):
            raise ValueError(
                f'[connect] owner = "strimzi" needs a name for resources of Kubernetes, which {self.name!r} is not: at'
                " most 50 lower-case letters, digits and -, a letter first, no - at the end"
            )
        return self

    @model_validator(mode="after")
    def _copy_and_mode(self) -> Self:
        if self.mode == "exactly-once" and self.capture.copy_method == "debezium":
            raise ValueError(
                '[capture] copy = "debezium" does not go with mode = "exactly-once": Debezium\'s own copy overlaps the'
                " stream, so changes would be applied to documents that already have them; leave copy out (Towpath"
                ' copies each document at a known time), or set mode = "plain"'
            )
        if self.mode == "plain" and self.capture.splice_cache:
            raise ValueError(
                '[capture] splice_cache does not go with mode = "plain", which applies changes at least once: a splice'
                " that is applied twice damages the array; leave it out"
            )
        if self.mode == "plain" and self.ddl.apply:
            raise ValueError(
                '[ddl] does not go with mode = "plain": only MongoSink makes schema changes in order with documents;'
                ' leave it out, or set mode = "exactly-once"'
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
