"""Name the subjects that messages travel on, and read them back.

On a vehicle: `f.<node>` frames, `p.<node>.<type>.<key>` points, `p.<parent>.<node>.<type>.<key>`
points of an edge, `e.<kind>` events, `r.<command id>` results. At the hub the same with
`up.<device>.` before it, set by the hub's own stream, never by the device.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Lane: TypeAlias = Literal["live", "bulk"]

DEVICE_ID = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")

_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_BYTE_TOKENS = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256)]
_EMPTY = "%"


class SubjectError(ValueError):
    """Say why a text is not a subject, or a token of one."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """Hold what a subject `up.<device>.<leaf subject>` says.

    `letter` is f, p, e or r. `node`: of frames and points. `type`: of points, and the kind of an
    event. `key`: of points, and the id of a result's command. `parent`: of the points of an edge,
    whose `node` is the lower end.
    """

    device: str
    lane: Lane
    leaf_subject: str
    letter: str
    node: str | None = None
    type: str | None = None
    key: str | None = None
    parent: str | None = None


def encode_token(text: str) -> str:
    """Percent-encode a name for a subject; an empty name is a single `%`. Raises: SubjectError."""
    if not text:
        return _EMPTY
    try:
        return "".join([_BYTE_TOKENS[byte] for byte in text.encode()])
    except UnicodeEncodeError as error:
        raise SubjectError("a name has a lone surrogate and no UTF-8 form") from error


def decode_token(token: str) -> str:
    """Return the name that a token stands for; each name has exactly one token.

    Raises: SubjectError for anything that encode_token would not have written.
    """
    if token == _EMPTY:
        return ""
    if not _TOKEN.fullmatch(token):
        raise SubjectError(f"{token[:80]!r} is not a subject token")
    if "%" not in token:
        return token
    raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), token).encode("latin-1")
    try:
        name = raw.decode()
    except UnicodeDecodeError as error:
        raise SubjectError(f"the token {token[:80]!r} is not UTF-8") from error
    if encode_token(name) != token:
        raise SubjectError(f"the token {token[:80]!r} escapes what needs no escape")
    return name


def frame_subject(node: str) -> str:
    """Return the subject of a node's frames on its vehicle."""
    return f"f.{encode_token(node)}"


def point_subject(node: str, type: str, key: str = "") -> str:
    """Return the subject of one series' points on its vehicle."""
    return f"p.{encode_token(node)}.{encode_token(type)}.{encode_token(key)}"


def edge_subject(parent: str, node: str, type: str, key: str = "") -> str:
    """Return the subject of the points of the edge from a parent down to a node."""
    return f"p.{encode_token(parent)}.{point_subject(node, type, key)[2:]}"


def event_subject(kind: str) -> str:
    """Return the subject of events of a kind on their vehicle."""
    return f"e.{encode_token(kind)}"


def lane_of(leaf_subject: str) -> Lane:
    """Return the lane that a leaf subject belongs to. Raises: SubjectError for any other subject."""
    match leaf_subject.partition(".")[0]:
        case "f":
            return "bulk"
        case "p" | "e" | "r":
            return "live"
    raise SubjectError(f"{leaf_subject[:80]!r} belongs to no lane")


def parse_uplink(subject: str) -> Uplink:
    """Read `up.<device>.<leaf subject>`. Raises: SubjectError."""
    prefix, _, rest = subject.partition(".")
    device, _, leaf_subject = rest.partition(".")
    if prefix != "up" or not DEVICE_ID.match(device):
        raise SubjectError(f"{subject[:80]!r} is not up.<device>.<leaf subject>")
    return parse_leaf(leaf_subject, device)


def parse_leaf(leaf_subject: str, device: str = "") -> Uplink:
    """Read a subject as it is on the vehicle. Raises: SubjectError."""
    lane = lane_of(leaf_subject)
    letter, *tokens = leaf_subject.split(".")
    names = [decode_token(token) for token in tokens]
    match letter, names:
        case "f", [node]:
            return Uplink(device, lane, leaf_subject, letter, node)
        case "p", [node, type_, key]:
            return Uplink(device, lane, leaf_subject, letter, node, type_, key)
        case "p", [parent, node, type_, key]:
            return Uplink(device, lane, leaf_subject, letter, node, type_, key, parent)
        case "e", [kind]:
            return Uplink(device, lane, leaf_subject, letter, type=kind)
        case "r", [command]:
            return Uplink(device, lane, leaf_subject, letter, key=command)
    raise SubjectError(f"{leaf_subject[:80]!r} has the wrong number of tokens")
