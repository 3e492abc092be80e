"""The identity document: a vehicle's own name, its hub, and its rights, from the hub to the vehicle.

The hub writes it, as a file that somebody brings to the vehicle or as its answer to an enrolment;
`backhaul-agent enrol` makes the vehicle's own files of it. It may hold secrets, so none of its
values stands in an error or in its repr.
"""

import re
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from backhaul_codec.strict.json import JsonError, read_json
from backhaul_codec.subjects import DEVICE_ID, SubjectError, require_own_lane

VERSION = 1
NODES_MAX = 64
URLS_MAX = 16
DOCUMENT_BYTES_MAX = 256 * 1024

LinkMode: TypeAlias = Literal["always", "scheduled", "on-demand"]

_SCHEMES = ("nats-leaf", "tls", "ws", "wss")
_URL = re.compile(r"\A[!-~]{1,512}\Z")  # goes into a configuration file: nothing but plain text
_PEM = re.compile(
    r"\A(?:\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----)+\s*\Z"
)
_JWT = re.compile(r"\A[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")
_USER_SEED = re.compile(r"\ASU[A-Z2-7]{56}\Z")


class IdentityError(ValueError):
    """Name the wrong field of a document, and the values allowed there; `field` may be empty."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class LinkCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The capacity of the vehicle's link at its worst, and when it is up (docs/link.md)."""

    mode: LinkMode = "always"
    kbit_s: Annotated[float, Meta(gt=0, le=10_000_000)] = 1000.0


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The name of a vehicle, and the way to its hub.

    `ca`: certificates in PEM that the hub's server is known by; empty: those of the system.
    `jwt`: the user JWT; empty where the addresses hold a login. `seed`: of that user's key, only
    where the hub made it. `nodes`: those with streams of their own.
    """

    version: int = VERSION
    device: str
    token: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    leaf_urls: Annotated[tuple[str, ...], Meta(min_length=1, max_length=URLS_MAX)]
    ca: str = ""
    jwt: str = ""
    seed: str = ""
    down_stream: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z")] = ""
    nodes: Annotated[tuple[str, ...], Meta(max_length=NODES_MAX)] = ()
    link: LinkCapacity = LinkCapacity()

    def __repr__(self) -> str:
        return f"Identity({self.device!r})"


def leaf_name(device: str, token: str) -> str:
    """Return the name of a device's leaf server, by which the hub tells leafs apart.

    Nobody else's to know: a server cuts an older leaf when one of the same name connects.
    """
    return f"{device}-{token}"


def encode_identity(identity: Identity) -> str:
    """Return the document as text. Raises: IdentityError, for one that could not be read."""
    text = msgspec.json.format(msgspec.json.encode(identity), indent=2).decode() + "\n"
    decode_identity(text)
    return text


def decode_identity(text: str | bytes) -> Identity:
    """Read a document and check every value.

    Raises:
        IdentityError: with the field, and what is allowed there.
    """
    if len(text) > DOCUMENT_BYTES_MAX:
        raise IdentityError("", f"{len(text)} bytes, a document has {DOCUMENT_BYTES_MAX} at most")
    try:
        raw = read_json(text)
        if not isinstance(raw, dict):
            raise IdentityError("", "not an identity document: a JSON object is expected")
        _require_version(raw.get("version"))
        identity = msgspec.convert(raw, Identity)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise IdentityError(place.rstrip("`").lstrip("."), problem) from None
    except JsonError as error:
        raise IdentityError("", f"not an identity document: {error}") from None
    _check(identity)
    return identity


def _require_version(version: object) -> None:
    if version != VERSION or type(version) is not int:
        raise IdentityError(
            "version",
            f"{str(version)[:20]} is not {VERSION}, which is what this backhaul knows:"
            " hub and agent must be of versions that fit",
        )


def _check(identity: Identity) -> None:
    if not DEVICE_ID.match(identity.device):
        raise IdentityError("device", "letters, digits, - and _ are allowed, 1 to 63")
    for url in identity.leaf_urls:
        _check_url(url, with_jwt=bool(identity.jwt))
    if identity.ca and not _PEM.match(identity.ca):
        raise IdentityError("ca", "certificates in PEM, and nothing else, are expected")
    if identity.jwt and not _JWT.match(identity.jwt):
        raise IdentityError("jwt", "not a JWT")
    if identity.seed and not _USER_SEED.match(identity.seed):
        raise IdentityError("seed", "not the seed of a user's key (SU...)")
    if identity.seed and not identity.jwt:
        raise IdentityError("seed", "the seed of a key is of no use without a jwt")
    if list(identity.nodes) != sorted(set(identity.nodes)):
        raise IdentityError("nodes", "each once, and sorted")
    for node in identity.nodes:
        try:
            require_own_lane(node)
        except SubjectError as error:
            raise IdentityError("nodes", str(error)) from None


def _check_url(url: str, *, with_jwt: bool) -> None:
    if not _is_leaf_url(url):
        raise IdentityError(
            "leaf_urls", "not the address of a leaf port, as in nats-leaf://hub.example.org:7422"
        )
    if with_jwt and "@" in url:
        raise IdentityError("leaf_urls", "a login in the address, where the jwt is the login")


def _is_leaf_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        plain = bool(_URL.match(url)) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of brackets, or a port that is no number
        return False
    return plain and parts.scheme in _SCHEMES
