"""Values of the program as JSON has them, so that a file can say what they were. Names of classes are not kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from math import isfinite
from typing import Any

from backhaul_codec import (
    CodecError,
    Point,
    chain,
    decode,
    encode_frame,
    encode_point,
    peek,
    restamp,
)
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import parse_uplink


def plain(value: Any) -> Any:
    """Return a value as JSON can say it: what has fields as the list of these, bytes in hex."""
    match value:
        case Enum():
            return plain(value.value)
        case float() if not isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case datetime() | date():
            return value.isoformat()
        case RangeSet():
            return [list(each) for each in value]
        case Mapping():
            pairs = [[plain(key), plain(each)] for key, each in value.items()]
            return (
                dict(pairs)
                if all(isinstance(key, str) for key, _ in pairs)
                else sorted(pairs, key=repr)
            )
        case set() | frozenset():
            return sorted(map(plain, value))
        case Iterable():
            return list(map(plain, value))
    if is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    if hasattr(value, "__struct_fields__"):
        return [plain(getattr(value, name)) for name in value.__struct_fields__]
    raise TypeError(type(value).__name__)


def message(subject: str, body: bytes) -> dict[str, Any]:
    """Return all that a message of UP says, and whether its content, written anew, is the same bytes."""
    uplink = parse_uplink(subject)
    # The kind of a message was its letter, and is a row of a table by now.
    names = [
        *(uplink.device, uplink.lane, uplink.leaf_subject, uplink.letter, uplink.node),
        *(uplink.type, uplink.key, uplink.parent, uplink.lane_node),
    ]
    try:
        header = peek(body)
        found = decode(body, node=uplink.node or "-", type=uplink.type or "-", key=uplink.key or "")
    except CodecError as error:
        return {"uplink": names, "error": error.reason}
    return {
        "uplink": names,
        "header": plain(header),
        "clock": found.clock,
        "points": plain(found.points),
        "again": _written(found.points, found.clock, header.kind.name, body),
    }


def _written(points: list[Point], clock: int, kind: str, body: bytes) -> str:
    """Return by which compression the same points become the same message; "" by none."""
    header = peek(body)
    for compression in ("none", "deflate") if kind == "FRAME" else ("none",):
        if kind == "FRAME":
            made = encode_frame(points, epoch=0, seq=0, clock=clock, compression=compression)
        else:
            made = encode_point(points[0], epoch=0, seq=0)
        if header.link:
            made = chain(made, epoch=header.epoch, seq=header.seq, link=header.link)
        else:
            made = restamp(made, epoch=header.epoch, seq=header.seq)
        if made == body:
            return compression
    return ""
