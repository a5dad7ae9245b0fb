"""A pipeline: all of its file, section by section, what each may hold, and what follows from that.

Attributes have the names of the keys. Durations are milliseconds, with -1 for `forever`; names of files are paths.
What a file holds that may be secret, `loading` adds: `uri` and `login`, which no `repr` shows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import bson
import platformdirs
from bson import json_util
from bson.errors import BSONError
from bson.json_util import CANONICAL_JSON_OPTIONS
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationInfo,
    field_validator,
    model_validator,
)

from towpath.config.logins import ConnectLogin, KafkaLogin, connect_url, shown
from towpath.config.namespaces import RESERVED, Selection, is_pattern, meet, namespace_of

#: How records are applied: exactly once, in transactions (MongoSink), or at least once (mongo-kafka's sink).
Mode = Literal["exactly-once", "plain"]
#: What makes the initial copy: MongoSource in ranges of `_id`, Debezium, or nothing.
CopyMethod = Literal["towpath", "debezium", "none"]
#: The order in which MongoSource reads a collection: `auto` chooses between the others for each collection.
CopyOrder = Literal["auto", "id", "natural"]
ReadPreference = Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"]
#: What happens when the source drops a collection: it waits for a decision, or is done at once.
DropPolicy = Literal["hold", "apply"]
#: Who creates the topics: `towpath deploy`, or someone else, with what `towpath topics` prints.
TopicSource = Literal["deploy", "exist"]
#: Who creates and changes the connectors: `towpath deploy`, or Strimzi's operator, which reverts what others change.
Owner = Literal["towpath", "strimzi"]

#: Ten digits of weeks, in milliseconds, still fit into Kafka's 64-bit settings.
_LENGTH = r"[1-9][0-9]{0,9}[smhdw]"
_SPLICE_CACHE = 64 << 20  # bytes
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


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


def _milliseconds(pattern: str, hint: str) -> BeforeValidator:
    """A validator that makes milliseconds of a text; -1 of `forever`."""
    matching = _matching(pattern, hint)

    def convert(value: object) -> int:
        if not isinstance(value, str):
            raise ValueError(f"{value!r:.80} is not {hint}")
        text = matching(value)
        return -1 if text == "forever" else int(text[:-1]) * _UNITS[text[-1]]

    return BeforeValidator(convert)


def _beside(name: object, info: ValidationInfo) -> object:
    """The path of a file or folder that a pipeline file names, relative to the folder in the context."""
    if not isinstance(name, str):
        return name
    try:
        return ((info.context or Path()) / Path(name).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{shown(name)} is not a path: {error}") from error


#: With it as their beginning, services and labels of Kubernetes have less than 64 characters.
KUBERNETES_NAME = r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?"
Pattern = Annotated[str, AfterValidator(_pattern)]
#: Lists in the file; lax, as its lists become tuples.
Patterns = Annotated[tuple[Pattern, ...], Field(strict=False)]
#: The three are written as text, and are milliseconds.
Duration = Annotated[
    int,
    _milliseconds(f"forever|{_LENGTH}", "a duration; write forever, or a number with s, m, h, d or w, such as 30d"),
]
Time = Annotated[int, _milliseconds(_LENGTH, "a length of time; write a number with s, m, h, d or w, such as 24h")]
Timeout = Annotated[
    int,
    _milliseconds(r"[1-9][0-9]{0,3}[sm]", "a timeout; write a number of up to four digits with s or m, such as 60s"),
]
#: Host and port; an IPv6 address in brackets. Port 0 takes any free one. Empty: nothing listens.
_LISTEN = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}|"
Listen = Annotated[str, AfterValidator(_matching(_LISTEN, "an address; write host:port, such as 127.0.0.1:9300"))]
#: Relative to the folder of the pipeline file, which is the context of the validation.
File = Annotated[Path, BeforeValidator(_beside)]
#: Per second; 0 is no limit. Both fit into a Java int or long.
Documents = Annotated[int, Field(ge=0, lt=2**31)]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]
#: A number of bytes, or text such as 64MiB.
Size = Annotated[ByteSize, Field(ge=0, lt=2**63)]


class Section(BaseModel):
    """A part of the file, or all of it. Excluded fields are no keys of the file: TOML has no values for them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _texts_are_printable(cls, value: object) -> object:
        """Reject line breaks, NULs and the like: no value needs them, and each component reads them differently."""
        texts = [text for pair in value.items() for text in pair] if isinstance(value, dict) else value
        for text in texts if isinstance(texts, list) else [texts]:
            if isinstance(text, str) and not text.isprintable():
                raise ValueError(f"{text[:80]!r} holds a character that is not printable")
        return value

    def changed(self, **changes: Any) -> Self:
        """A copy with other values, which are not validated; a dict has other values of a section."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        for name, change in changes.items():
            before = values[name]
            is_section = isinstance(before, Section) and isinstance(change, dict)
            values[name] = before.changed(**change) if is_section else change
        copy = self.model_construct(self.model_fields_set | set(changes))
        copy.__dict__.update(values)  # not through `model_construct`, which takes fields by their aliases
        return copy


class Cluster(Section):
    """One side. Exactly one of the three keys gives the URI."""

    uri: str = Field(default="", repr=False)
    """The URI of a replica set, MongoDB 5.0 or later. If it holds a password, keep the file private (`chmod 600`), or
    use one of the other two. Towpath reads from the primary, also if the URI has a `readPreference`; leave out
    `readPreferenceTags` and `maxStalenessSeconds`, which a primary does not allow."""
    uri_file: File | None = None
    """A file that holds the URI, and that only you can read."""
    uri_env: str | None = None
    """An environment variable that holds the URI."""

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of uri, uri_file and uri_env")
        return self


def _path(text: str) -> str:
    segments = text.split(".")
    if not all(segments) or any(segment.isascii() and segment.isdigit() for segment in segments):
        raise ValueError(
            f"{text!r} is not a path: write names of fields, joined by dots; numbers are skipped, so cards.number is"
            " the field number of each element of the array cards"
        )
    if segments[0] == "_id":
        raise ValueError(f"{text!r}: an _id always leaves as it is, because documents are known by it")
    return text


#: Of a field; through arrays and documents.
FieldPath = Annotated[str, AfterValidator(_path)]


def _quoted(value: object) -> object:
    """TOML makes tables of a path without quotes."""
    if isinstance(value, dict):
        raise ValueError('write a path with dots in quotes, such as "contacts.phone"')
    return value


def _constant(value: object) -> object:
    is_small = isinstance(value, int) and -(2**63) <= value < 2**63
    if isinstance(value, bool | str) or is_small or (isinstance(value, float) and math.isfinite(value)):
        return value
    _quoted(value)
    raise ValueError(f"{value!r:.80} cannot be set; write a text, true, false, or a finite number of up to 64 bits")


Constant = Annotated[bool | int | float | str, BeforeValidator(_constant)]


#: How filters are written and read: exactly.
FILTER_JSON = CANONICAL_JSON_OPTIONS.with_options(document_class=dict, tz_aware=True)
#: What the server decides by more than the document, or that does not go with a read in the order of `_id`s.
_UNSTABLE = (
    *("$where", "$function", "$rand", "$sampleRate", "$meta"),
    *("$text", "$near", "$nearSphere", "$geoNear"),
)
_UNSTABLE_VALUES = ("$$NOW", "$$CLUSTER_TIME", "$$USER_ROLES")


def _filter(value: object) -> object:
    try:
        parsed = json.loads(value, object_pairs_hook=_object) if isinstance(value, str) else None
        bson.encode({"filter": parsed})
    except (ValueError, TypeError, OverflowError, BSONError) as error:
        raise ValueError(f"{value!r:.80} is not a filter in Extended JSON: {error}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise ValueError(f"""{value!r:.80} is not a filter; write Extended JSON in a text: '{{"region": "eu"}}'""")
    for name in _names(parsed):
        if name in _UNSTABLE or name.startswith(_UNSTABLE_VALUES):
            raise ValueError(
                f"{name} cannot be in a filter: whether a document leaves may depend on nothing but the document"
            )
    return parsed


def _object(pairs: Sequence[tuple[str, Any]]) -> Any:
    """An object of a filter; PyMongo alone would leave out what it does not expect."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{', '.join(names)}: a name occurs twice; join both with $and")
    if "$regex" in names and (others := set(names) - {"$regex", "$options"}):
        raise ValueError(f"$regex beside {', '.join(sorted(others))}: join both with $and")
    return json_util.object_pairs_hook(pairs, FILTER_JSON)


def _names(value: object, *, in_expression: bool = False) -> Iterator[str]:
    """All names of fields and operators in a filter, and the texts in its aggregation expressions."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _names(inner, in_expression=in_expression or name == "$expr")
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner, in_expression=in_expression)
    elif isinstance(value, str) and in_expression:
        yield value


class FieldRule(Section):
    """Which documents of some collections leave the source, and which of their fields (`exactly-once`). Paths go
    through arrays, and longer ones come first; a drop includes everything below its path. See the design page
    [Rules](../design/rules.md)."""

    collections: Pattern
    """A namespace or a pattern, of names at the source. All rules that match a collection apply."""
    drop: Annotated[tuple[FieldPath, ...], Field(strict=False)] = ()
    """Paths of fields that do not leave."""
    hash: dict[FieldPath, Annotated[Literal["hmac"], BeforeValidator(_quoted)]] = {}
    """`path = "hmac"`: values are replaced by texts of 32 digits, the same for equal values (HMAC-SHA-256 with the key
    in `hash_key_file`)."""
    set: dict[FieldPath, Constant] = {}
    """`path = "text"`: values are replaced by this text, number or boolean."""
    only: Annotated[Mapping[str, Any] | None, BeforeValidator(_filter)] = None
    """A filter as the server's `find` takes it, as Extended JSON in a text: only documents that match leave, and a
    document that stops matching is deleted at the destination."""

    @cached_property
    def selection(self) -> Selection:
        """The namespaces that it is for."""
        return Selection((self.collections,))

    @property
    def actions(self) -> dict[str, Any]:
        """Path → what happens there, in words that are the same where the same happens."""
        actions: dict[str, Any] = dict.fromkeys(self.drop, "drop") | dict.fromkeys(self.hash, "hash")
        return actions | {path: f"set {value!r}" for path, value in self.set.items()}

    @model_validator(mode="after")
    def _each_path_once(self) -> Self:
        paths = [*self.drop, *self.hash, *self.set]
        if not paths and self.only is None:
            raise ValueError(f"the rule for {self.collections} does nothing: give drop, hash, set or only")
        for path in paths:
            if paths.count(path) > 1:
                raise ValueError(f"the rule for {self.collections} names {path} twice")
            if path.startswith("$") and path in self.set:  # Extended JSON would make a value of it
                raise ValueError(
                    f"the rule for {self.collections} sets {path}: hash or drop a field whose name has a $"
                )
        return self


class Collections(Section):
    include: Annotated[tuple[Annotated[Pattern, AfterValidator(_included)], ...], Field(strict=False, min_length=1)]
    """Namespaces `database.collection`; `*` stands for any characters. Matching collections that are created later are
    included."""
    exclude: Patterns = ()
    """Namespaces and patterns to leave out."""
    rename: dict[str, str] = {}
    """`"db.old" = "db.new"`: another name at the destination."""
    hash_key_file: File | None = None
    """A file with the key of rules that hash, at least 16 characters, that only you can read. Who has it can tell which
    hash belongs to a known value. With another key, what was hashed has to be re-read."""
    hash_key: InstanceOf[bytes] = Field(default=b"", repr=False, exclude=True)
    rules: Annotated[tuple[FieldRule, ...], Field(strict=False)] = ()
    """Which documents leave the source, and which of their fields; empty: everything."""

    @model_validator(mode="after")
    def _rules_agree(self) -> Self:
        hashes = any(rule.hash for rule in self.rules)
        if hashes and self.hash_key_file is None:
            raise ValueError("a rule that hashes needs hash_key_file: run openssl rand -hex 32 > hash.key")
        if self.hash_key_file is not None and not hashes:
            raise ValueError("hash_key_file is of no use: no rule hashes")
        for number, rule in enumerate(self.rules):
            for other in self.rules[number + 1 :]:
                for path, action in rule.actions.items():
                    if other.actions.get(path, action) != action and meet(rule.collections, other.collections):
                        raise ValueError(
                            f"rules: {path} is named by the rules for {rule.collections} and for {other.collections},"
                            " which can match one collection, with different actions"
                        )
        return self

    @model_validator(mode="after")
    def _renamed(self) -> Self:
        for old, new in self.rename.items():
            for namespace in (old, new):
                if "*" in namespace or not is_pattern(namespace):
                    raise ValueError(f"rename: {namespace!r} is not a namespace: database.collection")
            if new.partition(".")[0] in RESERVED:
                raise ValueError(
                    f"rename: {old!r} cannot become {new!r}: the server or Towpath keeps its own data in that database;"
                    " name another one"
                )
        return self


class Kafka(Section):
    bootstrap: str
    """Addresses of brokers."""
    client: File | None = None
    """A file of Kafka's client settings, such as the login."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Of each topic; never changes."""
    replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Of the topics; -1: the broker's default."""
    topics: TopicSource = "deploy"
    """Who creates the topics. `deploy`: `deploy` does, and Connect those of later collections. `exist`: you do, with
    what `towpath topics` prints; `deploy` and `check` compare. A collection without a topic stops the capture."""
    max_record: Annotated[ByteSize, Field(ge=1 << 20, le=17 << 20)] = Field(default="17MiB", validate_default=True)
    """The largest record of the topics, from `1MiB` to `17MiB`, which is a document of 16 MiB with its key. Lower it
    where the brokers take less. A larger document is cut into chunks (not in plain mode)."""
    login: InstanceOf[KafkaLogin] = Field(default=KafkaLogin(), repr=False, exclude=True)


class Connect(Section):
    url: Annotated[str, AfterValidator(connect_url)]
    """The REST API of one worker."""
    bootstrap: str | None = None
    """Kafka's address as the workers see it. Default: `bootstrap` in `[kafka]`."""
    secrets: File | None = None
    """Folder of the file with both URIs, which `deploy` writes; the same path on the workers. Default:
    `~/.local/state/towpath/secrets`."""
    user_file: File | None = None
    """A file with `user:password` for the REST API."""
    ca: File | None = None
    """The CA of an `https` URL. Default: the CAs of this machine."""
    certificate: File | None = None
    """Client certificate and key in one file."""
    owner: Owner = "towpath"
    """Who creates and changes the connectors. `towpath`: `deploy` does. `strimzi`: Strimzi's operator does, from the
    resources that `manifests` prints; `deploy` and `check` compare."""
    login: InstanceOf[ConnectLogin] = Field(default=ConnectLogin(), repr=False, exclude=True)

    @model_validator(mode="after")
    def _files_of_tls(self) -> Self:
        pem = [name for name in ("ca", "certificate") if getattr(self, name)]
        if pem and not self.url.startswith("https://"):
            raise ValueError(f"[connect] {' and '.join(pem)} go with an https:// url")
        return self


class Capture(Section):
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
    whole_documents: Patterns = ()
    """Collections whose updates are looked up as whole documents, because names of their fields hold a dot or begin
    with `$`."""
    splice_cache: Size | None = None
    """Memory for hashes of arrays' elements, a number of bytes or a text such as `64MiB`; with them a capped or edited
    array travels as its edits. 0: as whole arrays. Default: 64 MiB in `exactly-once`, always 0 in `plain`."""


class Write(Section):
    concern: Annotated[str, Field(pattern=r"^([1-9][0-9]*|majority|[A-Za-z][\w-]*)(\+journal)?$")] = "majority"
    """`1`, `majority`, `majority+journal`, …"""
    wtimeout: Timeout = Field(default="60s", validate_default=True)
    """How long a transaction waits for the concern before it is retried (`exactly-once`)."""
    tasks: Annotated[int, Field(ge=1, le=1000)] = 2
    """Writers in parallel, which share the partitions of all topics evenly."""
    fold: bool = True
    """The changes of one document in a batch become one write (`exactly-once`)."""
    batch_records: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    """One transaction takes the available records, up to this many (`exactly-once`)."""
    batch_bytes: Annotated[int, Field(ge=1, le=256 * 1024 * 1024)] = 16 * 1024 * 1024
    """One transaction takes the available records, up to this size; a larger record gets a separate transaction
    (`exactly-once`)."""


class Log(Section):
    retention: Duration = Field(default="forever", validate_default=True)
    """`forever`, or a duration such as `30d`: older records are deleted."""
    compact: bool = False
    """`true`: Kafka's log cleaner may compact the log."""
    compaction_lag: Time = Field(default="24h", validate_default=True)
    """The cleaner never drops younger records."""
    delete_retention: Time = Field(default="7d", validate_default=True)
    """How long deletes stay after that."""

    @property
    def complete_s(self) -> float:
        """For how many seconds it names every document that has changed; infinite where nothing is removed."""
        limits = [self.retention] if self.retention >= 0 else []
        limits += [self.compaction_lag + self.delete_retention] if self.compact else []
        return min(limits, default=math.inf) / 1000


class Run(Section):
    """What `towpath run` does in addition to supervising the connectors."""

    compact: bool | None = None
    """`run` does what `compact` does. Default: the value of `[log] compact`."""
    verify: bool = False
    """`run` does what `verify --follow` does."""
    repair: bool = True
    """`run` repairs dead letters once the destination accepts them (`exactly-once`)."""
    recovery_point: Time | None = None
    """The most that a loss of the source may cost, such as `10s`: an alert fires when the log is further behind the
    source."""
    listen: Listen = ""
    """Address of the page, the API and the metrics of `run`, such as `127.0.0.1:9300`; without it, nothing listens."""
    token_file: File | None = None
    """A file with the token for commands, and for readers on other machines; only its owner may read it."""
    read_only: bool = False
    """`true`: no commands, and no token to read."""
    certificate: File | None = None
    """For TLS: the certificate chain, in PEM."""
    key: File | None = None
    """Its key, in PEM. Default: in the file of `certificate`."""
    hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further names by which requests may address it."""

    @model_validator(mode="after")
    def _listens(self) -> Self:
        options = (self.token_file, self.certificate, self.key, self.read_only, self.hosts)
        if any(options) and not self.listen:
            raise ValueError("token_file, read_only, certificate, key and hosts belong to listen; set listen")
        return self


class Ddl(Section):
    """Schema changes at the source, where this section is there."""

    apply: bool = True
    """Schema changes go through the log, and are made at the destination (`exactly-once`). `false`: as without the
    section."""
    drop: DropPolicy = "hold"
    """`hold`: a drop of a collection waits for `ddl --apply` or `ddl --skip`. `apply`: it is made immediately."""


class Pipeline(Section):
    """A whole pipeline file. URIs may hold passwords: print `mongo_uri.without_credentials` of them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]
    """Prefix of topics and connectors; letters, digits and `-`, without `-replay`. Never changes."""
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
    def _keys_agree(self) -> Self:
        if "-replay" in self.name:
            raise ValueError(
                f"name: {self.name!r} could also be the name of a replay of another pipeline, and `remove --replay`"
                " would remove what belongs to this one: choose a name without -replay"
            )
        if self.connect.owner == "strimzi" and not re.fullmatch(KUBERNETES_NAME, self.name):
            raise ValueError(
                f'[connect] owner = "strimzi" needs a name for resources of Kubernetes, which {self.name!r} is not: at'
                " most 50 lower-case letters, digits and -, a letter first, no - at the end"
            )
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
        if self.mode == "plain" and self.collections.rules:
            raise ValueError(
                '[[collections.rules]] do not go with mode = "plain": only MongoSource applies them; leave them out, or'
                ' set mode = "exactly-once"'
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

    @property
    def exactly_once(self) -> bool:
        return self.mode == "exactly-once"

    @property
    def copy_method(self) -> CopyMethod:
        """What makes the initial copy."""
        return self.capture.copy_method or ("towpath" if self.exactly_once else "debezium")

    @property
    def splice_cache(self) -> int:
        """The most bytes of what MongoSource remembers of arrays, to send their changes as splices; 0: no splices."""
        default = _SPLICE_CACHE if self.exactly_once else 0
        return default if self.capture.splice_cache is None else int(self.capture.splice_cache)

    @property
    def worker_bootstrap(self) -> str:
        """Kafka's address as the Connect workers see it."""
        return self.connect.bootstrap or self.kafka.bootstrap

    @property
    def secrets_file(self) -> Path:
        """The properties file, on the machines of the Connect workers, that holds both URIs."""
        folder = self.connect.secrets or platformdirs.user_state_path("towpath") / "secrets"
        return folder / f"{self.name}.properties"

    @property
    def runs_compact(self) -> bool:
        """Whether `run` does what `compact` does."""
        return self.log.compact if self.run.compact is None else self.run.compact

    @property
    def has_operator(self) -> bool:
        """Whether an operator owns the connectors: what Towpath changes in them does not last."""
        return self.connect.owner == "strimzi"

    @property
    def has_own_source(self) -> bool:
        """Whether MongoSource captures, which copies in ranges and re-reads on request; else stock Debezium does."""
        return self.exactly_once or self.copy_method == "towpath"

    def renamed(self, namespace: str) -> str:
        """The namespace at the destination."""
        return self.collections.rename.get(namespace, namespace)

    @cached_property
    def selection(self) -> Selection:
        """Every namespace of the pipeline."""
        return Selection(self.collections.include, self.collections.exclude, lasting=self.ddl.apply)

    @cached_property
    def captured_by_update(self) -> Selection:
        """The namespaces whose updates travel as updates."""
        return replace(self.selection, exclude=self.collections.exclude + self.capture.whole_documents)

    @cached_property
    def captured_whole(self) -> Selection | None:
        """The namespaces whose updates travel as whole documents, looked up at the source; None if there are none."""
        whole = self.capture.whole_documents
        return replace(self.selection, only=whole) if whole else None

    @property
    def source_connector(self) -> str:
        return f"{self.name}-source"

    @property
    def whole_source_connector(self) -> str:
        return f"{self.name}-source-whole"

    @property
    def source_connectors(self) -> tuple[str, ...]:
        return (self.source_connector, *((self.whole_source_connector,) if self.capture.whole_documents else ()))

    def source_connector_of(self, namespace: str) -> str:
        """The source connector that captures a namespace of the pipeline."""
        whole = self.captured_whole is not None and self.captured_whole.matches(namespace)
        return self.whole_source_connector if whole else self.source_connector

    @property
    def sink_connector(self) -> str:
        return f"{self.name}-sink"

    @property
    def connectors(self) -> tuple[str, ...]:
        return (*self.source_connectors, self.sink_connector)

    @property
    def database(self) -> str:
        """The sink's setting `database`: one that the pipeline writes to.

        It has no effect on what is written, but mongo-kafka checks the user's privileges there, not on the namespaces
        that are written.
        """
        database, _, _ = self.renamed(self.collections.include[0]).partition(".")
        return self.name if "*" in database else database

    @property
    def sink_group(self) -> str:
        """The sink's consumer group, as Connect names it."""
        return f"connect-{self.sink_connector}"

    @property
    def compaction_group(self) -> str:
        """The consumer group of `towpath compact`."""
        return f"{self.name}-compact"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}.dead-letters"

    @property
    def request_topic(self) -> str:
        """The topic of the re-read requests to MongoSource."""
        return f"{self.name}.requests"

    def is_change_topic(self, topic: str) -> bool:
        """Whether a topic holds the changes of a namespace of the pipeline."""
        return topic.startswith(f"{self.name}.") and self.selection.matches(namespace_of(self.name, topic))

    @property
    def heartbeat_topics(self) -> tuple[str, ...]:
        """Debezium's heartbeats: `__debezium-heartbeat.<topic.prefix of the connector>`."""
        return tuple(f"__debezium-heartbeat.{prefix}" for prefix in self.capture_prefixes)

    @property
    def capture_prefixes(self) -> tuple[str, ...]:
        """Debezium's `topic.prefix` of each source connector; its offsets are kept under it."""
        return (self.name, *((f"{self.name}-whole",) if self.capture.whole_documents else ()))
