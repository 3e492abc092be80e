"""Desired against reported values: whether a wish is fulfilled, and if not, why not. Pure."""

from __future__ import annotations

from typing import Any, TypeGuard

from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.merge import Head
from backhaul_codec.wire.point_body import encode_value
from backhaul_hub.timestamps import rfc3339

ON_ITS_WAY, OVERRIDDEN, LOST = "on its way", "overridden", "lost"
"""Why a desired field is in `delta`."""


def same(one: Head, other: Head) -> bool:
    """Tell whether two heads have one value, of any writer and time."""
    if one.deleted or other.deleted:
        return one.deleted == other.deleted
    return encode_value(one.value) == encode_value(other.value)


def fulfils(head: Head | None, wish: Head) -> bool:
    """Tell whether a head, or its absence, fulfils the wish."""
    return wish.deleted if head is None else same(head, wish)


def stands(head: Head | None) -> TypeGuard[Head]:
    """Tell whether there is a value."""
    return head is not None and not head.deleted


def difference(wish: Head, has: Head | None, head: Head | None) -> dict[str, Any]:
    """Return an entry of `delta`: the three values, and why they are not one."""
    found: dict[str, Any] = {
        "desired": _shown(wish),
        "reported": _shown(has),
        "config": _shown(head),
        "since": rfc3339(wish.time),
    }
    if fulfils(head, wish):
        return found | {"why": ON_ITS_WAY}
    if head is None:  # hub.db is another one than it was
        return found | {"why": LOST}
    return found | {"why": OVERRIDDEN, "by": writer(head), "at": rfc3339(head.time)}


def _shown(head: Head | None) -> Any:
    return value_to_json(head.value)[0] if stands(head) else None


def writer(head: Head) -> str:
    """Return who wrote a head, in words."""
    return head.origin or "vehicle"
