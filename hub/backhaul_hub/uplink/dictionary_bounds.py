"""How many dictionaries of a vehicle the hub keeps, and which of them make room. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

KEPT_MAX = 64
"""Of one vehicle. An honest one has a new one when its nodes change, not each hour."""
IN_USE_NS = 7 * 86_400 * 1_000_000_000
"""A dictionary that a message referred to so lately is in use: some reader may still want it."""


class DictionaryKey(NamedTuple):
    """A dictionary, by its device and its digest."""

    device: str
    digest: bytes


class RoomFor(NamedTuple):
    """The outcome for new dictionaries."""

    keep: list[DictionaryKey]
    drop: list[DictionaryKey]
    """Former ones that make room: those whose last use is longest ago."""
    refuse: set[DictionaryKey]
    """New ones for which none can go."""


def choose(
    new: Iterable[DictionaryKey], known: Mapping[str, Mapping[bytes, int]], now_ns: int
) -> RoomFor:
    """Return which new dictionaries are kept, and which former ones go for them.

    Args:
        new: in the order in which they came.
        known: when each that is kept was last used, by device.
        now_ns: the hub's time.
    """
    used = {device: dict(some) for device, some in known.items()}
    choice = RoomFor([], [], set())
    for key in new:
        device, digest = key
        uses = used.setdefault(device, {})
        if digest in uses:
            continue
        if len(uses) >= KEPT_MAX:
            oldest = min(uses, key=uses.__getitem__)
            if uses[oldest] > now_ns - IN_USE_NS:
                choice.refuse.add(key)
                continue
            del uses[oldest]
            choice.drop.append(DictionaryKey(device, oldest))
        uses[digest] = now_ns
        choice.keep.append(key)
    return choice
