"""Hold a point, a value and a decoded message, and the limits they keep."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

# dtype numbers of the wire format; 8..255 are opaque bytes, kept as they are.
FLOAT64, INT64, UINT64, TEXT, BYTES, JSON, PROTOBUF = 1, 2, 3, 4, 5, 6, 7

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT64_MAX = 2**64 - 1

# A name travels percent-encoded in a subject: five of them at three bytes a byte still fit the
# 4 KB that a NATS server takes for a subject line.
NAME_BYTES_MAX = 255
VALUE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Opaque:
    """Carry bytes that the codec does not look into.

    `dtype` is 6 for JSON (`data` is UTF-8), 7 for protobuf, 8..255 for anything else.
    """

    dtype: int
    data: bytes


Value: TypeAlias = float | int | str | bytes | Opaque


@dataclass(frozen=True, slots=True)
class Point:
    """Hold the smallest datum: one value of one series of one node at one time.

    `time` is in ns since the Unix epoch, int64. `tombstone` (0..255) only ever grows; odd means
    deleted. `origin` says who wrote the point; empty is the node's own device. The values are
    checked when the point is encoded, not here: a vehicle makes thousands of points a second.
    """

    node: str
    type: str
    time: int
    value: Value
    key: str = ""
    tombstone: int = 0
    origin: str = ""


class SeriesName(NamedTuple):
    """Name a series within its device."""

    node: str
    type: str
    key: str


class Kind(IntEnum):
    """The kind of an envelope's body."""

    FRAME = 0
    POINT = 1
    BUNDLE = 2
    """A frame of many nodes."""
    DICTIONARY = 3
    """Bytes that later messages are packed against (wire/dictionaries.py)."""


class Header(NamedTuple):
    """Hold the header before a body, uncompressed; `raw_len` is the body's length in bytes.

    `link`: the hash of the message before it in its lane, empty where a message has none (version 1).
    A tuple: hubs make one for every message, and a frozen dataclass takes twice as long to make.
    """

    kind: Kind
    epoch: int
    seq: int
    raw_len: int
    link: bytes = b""


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one decoded message. `clock`: 0 synced, 1 holdover, 2 unset."""

    kind: Kind
    epoch: int
    seq: int
    points: list[Point]
    clock: int = 0
