"""MongoDB URIs as text: without credentials, with another option, and the PEM files that they name.

The Java driver cannot read PEM files, so the connectors get them as settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

#: Key in the secrets file, after the side → option of a URI. The setting of our connectors is `towpath.<key>`.
_OPTIONS = {
    "tls.ca": "tlsCAFile",
    "tls.certificate": "tlsCertificateKeyFile",
    "tls.key.password": "tlsCertificateKeyFilePassword",
}
_KEYS = {option.lower(): key for key, option in _OPTIONS.items()}
_OPTIONS_BEGIN = re.compile(r"\?(?=[A-Za-z]+=)")
_HOST = r"(?:\[[^\]/@]*\]|[^:/@,\[]+)(?::\d+)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/.*)?")


@dataclass(frozen=True, slots=True, repr=False)
class Split:
    """A URI for the Java driver, and the options removed from it: key in the secrets file → value, decoded."""

    uri: str
    pem: dict[str, str]


def split(uri: str) -> Split:
    """Remove the PEM files from a URI; other options, such as `tls=true`, stay."""
    head, mark, options = uri.partition("?")
    pem: dict[str, str] = {}
    others: list[str] = []
    for option in options.split("&") if options else ():
        name, _, value = option.partition("=")
        if key := _KEYS.get(name.lower()):
            pem[key] = unquote(value)
        else:
            others.append(option)
    return Split(f"{head}{mark}{'&'.join(others)}", pem)


def joined(uri: str, pem: dict[str, str]) -> str:
    """The inverse of `split`: a URI for Python's driver."""
    added = "&".join(f"{_OPTIONS[key]}={quote(value, '/')}" for key, value in pem.items())
    if not added:
        return uri
    return uri + ("" if uri.endswith(("?", "&")) else "&" if "?" in uri else "/?") + added


def references(uri: str, side: str, secrets: object) -> dict[str, str]:
    """The settings of a connector for these files: setting → reference to the secrets file."""
    return {f"towpath.{key}": f"${{file:{secrets}:{side}.{key}}}" for key in _OPTIONS if key in split(uri).pem}


def files(uri: str) -> Iterator[tuple[str, str]]:
    """Option and path of each file that the URI names."""
    pem = split(uri).pem
    yield from ((_OPTIONS[key], pem[key]) for key in ("tls.ca", "tls.certificate") if key in pem)


def without_credentials(uri: str) -> str:
    """The URI as messages may show it: without user, password and options.

    A URI parser would end the user's part at a / or ? in the password, which have to be encoded there. Nothing of it is
    shown even so.
    """
    scheme, mark, rest = uri.partition("://")
    heads = (rest[: options.start()] for options in _OPTIONS_BEGIN.finditer(rest))
    head = next((head for head in heads if "@" in head or _HOSTS.fullmatch(head)), rest)
    address = head.rpartition("@")[2]
    return scheme + mark + address.partition("?")[0].rstrip("/")


def with_option(uri: str, name: str, value: str) -> str:
    """The connection string with another option; an existing one stays as it is.

    Option names are case-insensitive (MongoDB's connection string specification).
    """
    head, _, options = uri.partition("?")
    names = {option.partition("=")[0].lower() for option in options.split("&")}
    if name.lower() in names:
        return uri
    if "/" not in head.partition("://")[2]:
        head += "/"
    return f"{head}?{options + '&' if options else ''}{name}={value}"
