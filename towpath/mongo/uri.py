"""MongoDB URIs as text: what may be shown of one, one more option, and the PEM files in it.

The Java driver cannot read PEM files: they reach the connectors as settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

#: Options of a URI, in lower case → the setting of our connectors, and the key in the secrets file after the side.
OPTIONS = {
    "tlscafile": ("towpath.tls.ca", "tls.ca"),
    "tlscertificatekeyfile": ("towpath.tls.certificate", "tls.certificate"),
    "tlscertificatekeyfilepassword": ("towpath.tls.key.password", "tls.key.password"),
}
_NAMES = {"tls.ca": "tlsCAFile", "tls.certificate": "tlsCertificateKeyFile"}
_NAMES["tls.key.password"] = "tlsCertificateKeyFilePassword"


@dataclass(frozen=True, slots=True, repr=False)
class Split:
    """A URI for the Java driver, and what was taken out of it: key in the secrets file → value, decoded."""

    uri: str
    pem: dict[str, str]


def split(uri: str) -> Split:
    """Take the PEM files out of a URI; a file means TLS, which stays said."""
    head, mark, options = uri.partition("?")
    pem: dict[str, str] = {}
    left: list[str] = []
    for option in options.split("&") if options else ():
        name, _, value = option.partition("=")
        if name.lower() in OPTIONS:
            pem[OPTIONS[name.lower()][1]] = unquote(value)
        else:
            left.append(option)
    return Split(f"{head}{mark}{'&'.join(left)}", pem)


def joined(uri: str, pem: dict[str, str]) -> str:
    """The URI as `split` was given it, for Python's driver."""
    added = "&".join(f"{_NAMES[key]}={quote(value, '/')}" for key, value in pem.items())
    if not added:
        return uri
    return uri + ("" if uri.endswith(("?", "&")) else "&" if "?" in uri else "/?") + added


def references(uri: str, side: str, secrets: object) -> dict[str, str]:
    """The settings of a connector that reads these files: setting → where in the secrets file it is."""
    found = split(uri).pem
    return {setting: f"${{file:{secrets}:{side}.{key}}}" for setting, key in OPTIONS.values() if key in found}


def files(uri: str) -> Iterator[tuple[str, str]]:
    """Option and path of each file that the URI names."""
    pem = split(uri).pem
    for key in ("tls.ca", "tls.certificate"):
        if key in pem:
            yield _NAMES[key], pem[key]


def without_credentials(uri: str) -> str:
    """The URI as it may be shown: no user, no password, no options."""
    scheme, mark, rest = uri.partition("://")
    address = rest.rpartition("@")[2]  # by hand: a / in a password would end the user's part for a parser of URIs
    return scheme + mark + address.partition("?")[0].rstrip("/")


def with_option(uri: str, name: str, value: str) -> str:
    """The connection string with one more option; one that is there stays as it is.

    Option names compare without regard to case (MongoDB's connection string specification).
    """
    head, _, options = uri.partition("?")
    names = {option.partition("=")[0].lower() for option in options.split("&")}
    if name.lower() in names:
        return uri
    if "/" not in head.partition("://")[2]:
        head += "/"
    return f"{head}?{options + '&' if options else ''}{name}={value}"
