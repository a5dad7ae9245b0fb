"""The Connect REST API, typed: every endpoint, URL and status code that Towpath uses, and why a connector has failed.

Every answer is read to its end within a time limit. An answer that is not Connect's is a `ConnectError`.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import httpx
import tenacity
from pydantic import Field, TypeAdapter, computed_field

from towpath.clients.tls import TlsProblem, Trust, tls_problem
from towpath.config.logins import ConnectLogin
from towpath.errors import ConnectError, ConnectUnreachable, NoSuchConnector, TowpathError, Unresolved

T = TypeVar("T")

_TIMEOUT = httpx.Timeout(10, read=90)  # validation of a connector connects to its cluster, which may take its time

#: Status → what is wrong, and what to do.
_REFUSALS = {
    401: (
        "Kafka Connect requires a user and a password, or refuses the given ones",
        "write user:password into the file of [connect] user_file",
    ),
    403: (
        "Kafka Connect, or a proxy before it, does not allow this to the user",
        "allow it, or name another user in the file of [connect] user_file",
    ),
}


#: Our code at the front of a message, after the class of an exception if there is one.
_CODE = re.compile(r"(?:[\w$.]+: )?(TWP-[A-Z-]+[A-Z]): ")
_CAUSE = "Caused by: "
#: Class names that add nothing to the message after them.
_PLAIN = re.compile(
    r"^(?:org\.apache\.kafka\.connect\.errors\.\w+|io\.towpath\.record\.ContractException|[\w.$]+(?=: TWP-)): "
)
#: Failures of other software that map to one of our codes; 286 is MongoDB's ChangeStreamHistoryLost.
_FOREIGN = {
    r"^(?:[\w$]+\.)*(?:ConfigException|ClassNotFoundException|NoClassDefFoundError)(?:: |$)": "TWP-CONFIG",
    r"\b(?:error|code) 286\b|may no longer be in the oplog": "TWP-HISTORY-LOST",
    "Invalid value .* for configuration|Failed to find any class": "TWP-CONFIG",
}
#: User and password of a MongoDB URI, also where someone has not escaped an @, a slash or a space.
_USER = re.compile(r"(mongodb(?:\+srv)?://)(?:[^@\s]*|[^@/]*)@(?:\S*@)?")


@dataclass(frozen=True, slots=True)
class Failure:
    """The essence of a Java stack trace, which is all that Connect reports."""

    what: str
    """One line: the exception with a code, or else the deepest cause."""
    code: str
    """As in `docs/errors.md`; empty where a restart may help."""

    @classmethod
    def of(cls, trace: str) -> Failure:
        lines = [line.strip() for line in trace.splitlines()] or [""]
        causes = [line for n, line in enumerate(lines) if n == 0 or line.startswith(_CAUSE)]
        causes = [line.removeprefix(_CAUSE) for line in causes]
        line = next(filter(code_of, causes), causes[-1])
        code = code_of(line) or next((code for words, code in _FOREIGN.items() if re.search(words, line)), "")
        return cls(without_users(_PLAIN.sub("", line)), code)


def without_users(text: str) -> str:
    """URIs in it lose their users: mongo-kafka quotes a URI that it cannot use, with its password."""
    return _USER.sub(r"\1", text)


def code_of(message: str) -> str:
    """The code at the front of a message of our connectors, or of an exception; empty without one."""
    match = _CODE.match(message)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a connector; `trace` is the Java stack trace when `state` is FAILED."""

    id: int
    state: str
    worker: Annotated[str, Field(validation_alias="worker_id")]
    trace: Annotated[str, Field(exclude=True)] = ""


@dataclass(frozen=True, slots=True)
class Connector:
    """State of one connector (RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING) and of its tasks."""

    name: str
    state: str
    worker: Annotated[str, Field(validation_alias="worker_id")]
    tasks: tuple[Task, ...]
    trace: Annotated[str, Field(exclude=True)] = ""

    @property
    def running(self) -> bool:
        return self.state == "RUNNING" and bool(self.tasks) and all(t.state == "RUNNING" for t in self.tasks)

    @property
    def unassigned(self) -> bool:
        """Whether Connect shows it, or a task, as UNASSIGNED: see `towpath.clients.connect.control.Unassigned`."""
        return "UNASSIGNED" in (self.state, *(task.state for task in self.tasks))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of the connector and its tasks, each once."""
        traces = [self.trace if self.state == "FAILED" else ""] + [t.trace for t in self.tasks if t.state == "FAILED"]
        return tuple(dict.fromkeys(Failure.of(trace) for trace in traces if trace))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The messages of `failures`."""
        return tuple(failure.what for failure in self.failures)


def failure(connectors: Iterable[Connector]) -> TowpathError | None:
    """The failures of these connectors as one error; None when none has failed."""
    failed = [connector for connector in connectors if connector.failures]
    if not failed:
        return None
    what = "; ".join(f"{connector.name} has failed: {'; '.join(connector.reasons)}" for connector in failed)
    code = next((cause.code for connector in failed for cause in connector.failures if cause.code), "")
    return TowpathError(what, where=failed[0].name, code=code)


class Passing(ConnectError):
    """The workers rebalance, or the topic of configurations has no leader: the same request succeeds a moment later."""


#: Connect answers some failures with 500 or 400 and only a message: when it could not read or write a configuration
#: (AbstractHerder, KafkaConfigBackingStore), and about a file that a configuration refers to.
_PASSING = re.compile("a rebalance is expected|the request can be safely retried")
_COLLECTING = "Failed to retrieve offsets"
_UNRESOLVED = re.compile(r"Could not read properties|\$\{file:")


def _kind(answer: httpx.Response) -> type[ConnectError]:
    text = message(answer)
    if answer.status_code == 409 or (answer.status_code == 500 and _PASSING.search(text)):
        return Passing
    if answer.status_code == 404 and is_about_connector(answer):
        return NoSuchConnector
    return Unresolved if _UNRESOLVED.search(text) else ConnectError


_retry_passing = tenacity.retry(
    retry=tenacity.retry_if_exception_type(Passing),
    wait=tenacity.wait_exponential(multiplier=0.2, max=3),
    stop=tenacity.stop_after_delay(60),
    reraise=True,
)
#: A sink's consumers leave their group a while after its tasks have stopped; until then Connect answers 500.
_while_leaving = tenacity.retry(
    retry=tenacity.retry_if_exception(lambda error: isinstance(error, ConnectError) and error.status == 500),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(60),
    reraise=True,
)
#: Connect collects the offsets while its reader of the offsets topic adds some, and answers with 500 when both meet
#: (`ConnectorOffsetBackingStore.connectorPartitions`, 4.3.1): seen with the offsets of 5,000 collections.
_while_changing = tenacity.retry(
    retry=tenacity.retry_if_exception(
        lambda error: isinstance(error, ConnectError) and error.status == 500 and _COLLECTING in error.what
    ),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(10),
    reraise=True,
)
_NO_LOGIN = ConnectLogin()


class Connect:
    """A Connect cluster behind the URL of one of its workers.

    Every call raises `ConnectUnreachable` when no worker answers and `ConnectError` with method, path, status and
    Connect's own message when the answer is not a success. Failures that Connect calls temporary are retried for 60 s.
    """

    def __init__(self, url: str, login: ConnectLogin = _NO_LOGIN) -> None:
        self.url, self._login = url.rstrip("/"), login
        # without TLS there is nothing to verify, and to read all certificates takes 40 ms
        verify: ssl.SSLContext | bool = self.url.startswith("https:")
        try:
            if verify and (login.ca or login.certificate):
                verify = _trust(self.url, login).context()
            self._open = partial(
                httpx.Client,
                base_url=self.url,
                timeout=_TIMEOUT,
                auth=(login.user, login.password) if login.user else None,
                verify=verify,
            )
            self._client = self._open()
        except (OSError, httpx.InvalidURL) as error:
            raise self._no_answer(error) from error

    def renew(self) -> None:
        """Use a new client from now on: an exception in the middle of the library may have left a lock taken."""
        self._client = self._open()

    def __enter__(self) -> Connect:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def worker(self) -> tuple[str, str]:
        """The version of the worker that answers, and the id of the workers' Kafka cluster."""
        return self._read("GET", "/", lambda root: _WORKER.validate_python((root["version"], root["kafka_cluster_id"])))

    def plugins(self) -> dict[str, str]:
        """Class name → version of every plugin that the worker has, transforms and converters included."""
        return self._read(
            "GET",
            "/connector-plugins",
            lambda plugins: {str(plugin["class"]): str(plugin.get("version")) for plugin in plugins},
            params={"connectorsOnly": "false"},
        )

    def names(self) -> list[str]:
        return self._read("GET", "/connectors", _names)

    def configs(self) -> dict[str, dict[str, str]]:
        """The configurations of all connectors by name, in one request."""
        return self._read(
            "GET",
            "/connectors",
            lambda found: _CONFIGS.validate_python({name: one["info"]["config"] for name, one in found.items()}),
            params={"expand": "info"},
        )

    def config(self, name: str) -> dict[str, str] | None:
        """The configuration as it was put, `${…}` unresolved; None if there is no such connector."""
        try:
            return self._read("GET", f"/connectors/{name}/config", _SETTINGS.validate_python)
        except NoSuchConnector:
            return None

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector, or give it this configuration."""
        self._ask("PUT", f"/connectors/{name}/config", json=dict(config))

    def create_stopped(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector without starting it: it has no task until it is resumed."""
        self._ask("POST", "/connectors", json={"name": name, "config": dict(config), "initial_state": "STOPPED"})

    def errors(self, name: str, config: Mapping[str, str]) -> dict[str, list[str]]:
        """The objections of Connect and the connector to the configuration: key → messages; empty without any."""
        plugin = config["connector.class"].rsplit(".", 1)[-1]
        whole = {**config, "name": name}
        return self._read("PUT", f"/connector-plugins/{plugin}/config/validate", faults, json=whole)

    def recommended(self, plugin: str, setting: str) -> list[str]:
        """The values that a connector class recommends for a setting; empty where it has no such setting."""
        path = f"/connector-plugins/{plugin.rsplit('.', 1)[-1]}/config/validate"
        values = self._read(
            "PUT", path, lambda found: _values(found, "recommended_values"), json={"connector.class": plugin}
        )
        return values.get(setting, [])

    def status(self, name: str) -> Connector:
        """The state of a connector; one that Connect does not know is MISSING."""
        try:
            return self._read("GET", f"/connectors/{name}/status", partial(_connector, name))
        except NoSuchConnector:
            return Connector(name, "MISSING", "", ())

    def topics(self, name: str) -> list[str]:
        """The topics that a connector has written or read since it was created; none if it does not exist.

        None either where the workers do not keep count of them (`topic.tracking.enable=false`).
        """
        try:
            return self._read("GET", f"/connectors/{name}/topics", lambda found: _names(found[name]["topics"]))
        except NoSuchConnector:
            return []
        except ConnectError as error:
            if error.status == 403 and "tracking is disabled" in error.what:
                return []
            raise

    @_while_changing
    def offsets(self, name: str) -> list[dict[str, Any]]:
        """The connector's committed offsets: `[{"partition": {…}, "offset": {…}}, …]`."""
        return self._read("GET", f"/connectors/{name}/offsets", offsets)

    def forget_offsets(self, name: str) -> None:
        """Remove all offsets of a connector, which must be STOPPED, if it has any.

        For a source connector that was created STOPPED and never had a task, Connect answers every deletion with 500.
        """
        if self.offsets(name):
            self._change_offsets("DELETE", name)

    def move_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Make a sink, which must be STOPPED, continue at these offsets: (topic, partition) → the next to read."""
        moved = [
            {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": offset}}
            for (topic, partition), offset in offsets.items()
        ]
        self._change_offsets("PATCH", name, json={"offsets": moved})

    @_while_leaving
    def _change_offsets(self, method: str, name: str, **request: Any) -> None:
        self._ask(method, f"/connectors/{name}/offsets", **request)

    def pause(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/pause")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/resume")

    def stop(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/stop")

    def restart(self, name: str, *, only_failed: bool) -> None:
        choice = {"includeTasks": "true", "onlyFailed": str(only_failed).lower()}
        self._ask("POST", f"/connectors/{name}/restart", params=choice)

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/connectors/{name}")

    def _read(self, method: str, path: str, read: Callable[[Any], T], **request: Any) -> T:
        """The answer as `read` decodes it. Raises `ConnectError` for JSON of another shape than Connect's."""
        answer = self._ask(method, path, **request)
        try:
            return read(answer)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._no_connect(method, path, "the answer is JSON, but not Kafka Connect's") from error

    def _no_connect(self, method: str, path: str, what: str) -> ConnectError:
        return ConnectError(what, "is this Kafka Connect? ([connect] url)", where=f"{method} {self.url}{path}")

    @_retry_passing
    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            with self._client.stream(method, path, **request) as streamed:
                answer = read(streamed)
        except (httpx.TimeoutException, TimeoutError) as error:
            raise ConnectUnreachable(
                f"Kafka Connect at {self.url} did not answer {method} {path} in time", where=self.url
            ) from error
        except httpx.DecodingError as error:
            raise self._no_connect(method, path, f"the answer cannot be decoded ({error})") from error
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise self._no_answer(error) from error
        if answer.is_success:
            try:
                return answer.json() if answer.content else None
            except (ValueError, RecursionError) as error:
                raise self._no_connect(method, path, "the answer is not JSON") from error
        if answer.status_code == 404 and answer.content.lstrip().startswith(b"<"):  # the web server's own page
            raise ConnectUnreachable(
                "404, and not from Kafka Connect itself: its worker is still starting, or something else listens there"
                " ([connect] url)",
                where=f"{method} {self.url}{path}",
                status=404,
            )
        reason, advice = _REFUSALS.get(answer.status_code) or (message(answer), "")
        what, where = f"{answer.status_code}: {reason}", f"{method} {self.url}{path}"
        raise _kind(answer)(what, advice, where=where, status=answer.status_code)

    def _no_answer(self, error: Exception) -> ConnectError:
        """`ConnectUnreachable` unless the URL cannot be used, or TLS is the problem: then something is there."""
        unusable = isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol)
        problem = None if unusable else _tls_problem(self.url, self._login)
        reason, advice = (problem.what, problem.advice) if problem else (str(error), "is a worker running there?")
        what = f"cannot reach Kafka Connect at {self.url}: {reason}"
        kind = ConnectError if problem or unusable else ConnectUnreachable
        return kind(what, f"{advice} ([connect] url)", where=self.url)


_WHOLE = 120.0  # seconds until the last byte of an answer must have come, however steadily it drips
_LARGEST = 256 << 20  # bytes; the largest answer, all offsets of a copy of many ranges, is far below


def read(answer: httpx.Response) -> httpx.Response:
    """An answer with its whole body. Raises `TimeoutError` when it does not end in time, or is too large."""
    end, size = time.monotonic() + _WHOLE, 0
    parts: list[bytes] = []
    for part in answer.iter_bytes():
        parts.append(part)
        size += len(part)
        if time.monotonic() > end or size > _LARGEST:
            raise TimeoutError
    return httpx.Response(answer.status_code, content=b"".join(parts))


def _connector(name: str, status: Any) -> Connector:
    return _CONNECTOR.validate_python(status["connector"] | {"name": name, "tasks": status["tasks"]})


def _names(answer: Any) -> list[str]:
    return sorted(_TEXTS.validate_python(answer))


def offsets(answer: Any) -> list[dict[str, Any]]:
    return [item for item in _OFFSETS.validate_python(answer["offsets"]) if item["offset"] is not None]


def faults(answer: Any) -> dict[str, list[str]]:
    found = {name: [without_users(text) for text in texts] for name, texts in _values(answer, "errors").items()}
    return {name: texts for name, texts in found.items() if texts}


def _values(answer: Any, part: str) -> dict[str, list[str]]:
    """One part of the answer to a validation: setting → texts. Debezium lists settings without a value."""
    values = [item["value"] for item in answer["configs"] if item["value"]]
    return {value["name"]: _TEXTS.validate_python(value[part]) for value in values}


_TEXTS, _SETTINGS = TypeAdapter(list[str]), TypeAdapter(dict[str, str])
_OFFSETS = TypeAdapter(list[dict[str, dict[str, Any] | None]])
_CONNECTOR = TypeAdapter(Connector)
_WORKER, _CONFIGS = TypeAdapter(tuple[str, str]), TypeAdapter(dict[str, dict[str, str]])


def message(answer: httpx.Response) -> str:
    try:
        text = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = answer.text[:200] or answer.reason_phrase or "without a word"
    return "".join(character if character.isprintable() else " " for character in without_users(text)).strip()


def is_about_connector(answer: httpx.Response) -> bool:
    """Whether a 404 is Connect's answer about a connector, and not about an unknown path, or that of a web server."""
    try:
        error = answer.json()
        return bool(error["error_code"] == 404 and error["message"] != "HTTP 404 Not Found")
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _tls_problem(url: str, login: ConnectLogin) -> TlsProblem | None:
    """What is wrong with TLS at this URL."""
    parts, trust = urlsplit(url), _trust(url, login)
    return tls_problem([(parts.hostname or "", parts.port or (443 if trust.tls else 80))], trust)


def _trust(url: str, login: ConnectLogin) -> Trust:
    words = "https:// in [connect] url", "[connect] ca", "[connect] certificate"
    return Trust(url.startswith("https:"), login.ca, login.certificate, "", *words)
