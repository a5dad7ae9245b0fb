"""The pipeline file: TOML, read strictly, so that a mistyped key is an error and is not ignored."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs
from pydantic import ValidationError

from towpath.clients.mongo import uri as mongo_uri
from towpath.config.credential_files import beside, connect_login, kafka_client, refuse_files, refuse_open, shown
from towpath.config.namespaces import RESERVED, Renames, is_pattern
from towpath.config.pipeline import Compaction, Copy, Ddl, Listening, Mode, Pipeline, RunOptions
from towpath.config.schema import Cluster, PipelineFile, Run
from towpath.errors import BadPipelineFile

_SPLICE_CACHE = 64 << 20  # bytes
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def read(path: Path) -> Pipeline:
    """Read and check a pipeline file. Raises `BadPipelineFile`, which lists every fault in the file."""
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadPipelineFile(
            f"there is no pipeline file {path}", f"`towpath init {path} --include …` writes one", where=str(path)
        ) from error
    except (OSError, ValueError) as error:
        raise BadPipelineFile(f"cannot read the pipeline file {path}: {error}", where=str(path)) from error
    return parse(content, path)


def parse(content: str, path: Path) -> Pipeline:
    """The pipeline of a file with this `content` at `path`, which need not exist. Raises as `read` does."""
    return _pipeline(as_written(content, path), path)


def as_written(content: str, path: Path) -> PipelineFile:
    """The content of a pipeline file, with defaults; nothing that it names is read. Raises `BadPipelineFile`."""
    try:
        return PipelineFile.model_validate(_toml(content, path))
    except ValidationError as error:
        faults = "\n".join(f"  {_description(fault)}" for fault in error.errors(include_url=False))
        raise BadPipelineFile(f"{path} cannot be used:\n{faults}", where=str(path)) from error


def _toml(content: str, path: Path) -> dict[str, Any]:
    if content.startswith("\ufeff"):
        raise BadPipelineFile(
            f"{path} begins with a byte order mark, which TOML does not have; save it as plain UTF-8", where=str(path)
        )
    try:
        return tomllib.loads(content)
    except RecursionError as error:
        raise BadPipelineFile(f"{path} is not TOML: it is nested too deeply", where=str(path)) from error
    except ValueError as error:  # besides TOMLDecodeError: a number with thousands of digits
        raise BadPipelineFile(f"{path} is not TOML: {error}", where=str(path)) from error


def _description(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            return f"{place}: unknown key; is it misspelt, or in the wrong section?"
        case "missing":
            return f"{place}: is missing"
        case "string_pattern_mismatch":
            return f"{place}: {shown(fault['input'])} does not fit {fault['ctx']['pattern']}"
        case "byte_size" | "byte_size_unit":
            return f"{place}: {shown(fault['input'])} is not a size; write a number of bytes, or a text such as 64MiB"
        case _:
            message = fault["msg"].removeprefix("Value error, ")
            return f"{place}: {message[0].lower()}{message[1:]}" if place else message


def _pipeline(file: PipelineFile, path: Path) -> Pipeline:
    for old, new in file.collections.rename.items():
        for namespace in (old, new):
            if "*" in namespace or not is_pattern(namespace):
                raise BadPipelineFile(
                    f"{namespace!r} is not a namespace: database.collection", where=f"{path}: [collections.rename]"
                )
        if new.partition(".")[0] in RESERVED:
            raise BadPipelineFile(
                f"{old!r} cannot become {new!r}: the server or Towpath keeps its own data in that database; name"
                " another one",
                where=f"{path}: [collections.rename]",
            )
    capture, log, run = file.capture, file.log, file.run
    return Pipeline(
        name=file.name,
        mode=file.mode,
        source_uri=_uri(file.source, "source", path, file.mode),
        destination_uri=_uri(file.destination, "destination", path, file.mode),
        include=tuple(file.collections.include),
        exclude=tuple(file.collections.exclude),
        renames=Renames(file.collections.rename),
        whole_documents=tuple(capture.whole_documents),
        copy=Copy(
            method=capture.copy_method or ("debezium" if file.mode == "plain" else "towpath"),
            tasks=capture.copy_tasks,
            threads=capture.copy_threads,
            read_preference=capture.read_preference,
            documents_per_second=capture.documents_per_second,
            bytes_per_second=capture.bytes_per_second,
            order=capture.copy_order,
        ),
        splice_cache=_splice_cache(file),
        bootstrap=file.kafka.bootstrap,
        partitions=file.kafka.partitions,
        replication_factor=file.kafka.replication_factor,
        connect_url=_http(file.connect.url, path),
        worker_bootstrap=file.connect.bootstrap or file.kafka.bootstrap,
        secrets=_secrets(file, path),
        write_concern=file.write.concern,
        wtimeout_ms=_milliseconds(file.write.wtimeout),
        tasks=file.write.tasks,
        fold=file.write.fold,
        batch_records=file.write.batch_records,
        batch_bytes=file.write.batch_bytes,
        retention_ms=_milliseconds(log.retention),
        compaction=Compaction(_milliseconds(log.compaction_lag), _milliseconds(log.delete_retention))
        if log.compact
        else None,
        kafka_client=kafka_client(file.kafka, path),
        connect_login=connect_login(file.connect, path),
        run=RunOptions(
            log.compact if run.compact is None else run.compact, run.verify, run.repair, _listening(run, path)
        ),
        ddl=Ddl(file.ddl.drop) if file.ddl.apply else None,
        owner=file.connect.owner,
    )


def _listening(run: Run, path: Path) -> Listening | None:
    if not run.listen:
        return None
    token_file, certificate, key = (
        beside(path, name, f"[run] {option}") if name else None
        for option, name in (("token_file", run.token_file), ("certificate", run.certificate), ("key", run.key))
    )
    return Listening(run.listen, token_file, run.read_only, certificate, key, tuple(run.hosts))


def _splice_cache(file: PipelineFile) -> int:
    default = _SPLICE_CACHE if file.mode == "exactly-once" else 0
    return default if file.capture.splice_cache is None else int(file.capture.splice_cache)


def _http(url: str, path: Path) -> str:
    if "@" in url:
        raise BadPipelineFile(
            "[connect] url holds a user, which would be printed with it",
            "write user:password into a file that only you can read, and name that with [connect] user_file",
            where=str(path),
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # raises for one that is too large
    except ValueError as error:
        raise BadPipelineFile(f"{shown(url)} is not a URL: {error}", where=f"{path}: [connect] url") from error
    if parts.scheme not in ("http", "https") or not host:
        raise BadPipelineFile(
            f"{shown(url)} is not the URL of a Connect worker: http://host:8083", where=f"{path}: [connect] url"
        )
    return url


def _uri(cluster: Cluster, side: str, path: Path, mode: Mode) -> str:
    if cluster.uri_env is not None:
        uri = os.environ.get(cluster.uri_env)
        if not uri:
            raise BadPipelineFile(
                f"the environment variable {cluster.uri_env} is not set", where=f"{path}: [{side}] uri_env"
            )
    elif cluster.uri_file is not None:
        file = beside(path, cluster.uri_file, f"[{side}] uri_file")
        try:
            uri = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise BadPipelineFile(f"cannot read {file}: {error}", where=f"{path}: [{side}] uri_file") from error
        refuse_open(file, f"it holds the URI of the {side}")
    else:
        uri = cluster.uri or ""
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise BadPipelineFile("the URI must begin with mongodb:// or mongodb+srv://", where=f"{path}: [{side}]")
    try:
        urlsplit(uri)
    except ValueError as error:
        raise BadPipelineFile(f"the URI is not valid: {error}", where=f"{path}: [{side}]") from error
    if cluster.uri is not None and holds_secret(uri):
        refuse_open(path, f"it holds the password of the {side}")
    refuse_files(mongo_uri.files(uri), f"{path}: [{side}]", plain_sink=side == "destination" and mode == "plain")
    return uri


def holds_secret(uri: str) -> bool:
    """Whether the URI holds the password of a user or of a key."""
    return ":" in uri.partition("://")[2].rpartition("@")[0] or "password=" in uri.lower()


def _secrets(file: PipelineFile, path: Path) -> Path:
    name = f"{file.name}.properties"
    if file.connect.secrets is None:
        return platformdirs.user_state_path("towpath") / "secrets" / name
    return beside(path, file.connect.secrets, "[connect] secrets") / name


def _milliseconds(duration: str) -> int:
    return -1 if duration == "forever" else int(duration[:-1]) * _UNITS[duration[-1]] * 1000
