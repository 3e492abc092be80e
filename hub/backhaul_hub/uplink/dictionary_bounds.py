"""How many dictionaries of a vehicle the hub keeps, and which of them make room. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

KEPT_MAX = 64
"""Of one vehicle, so many may be in use within a week. An honest one has a new one when its nodes change, not each hour."""
IN_USE_NS = 7 * 86_400 * 1_000_000_000
REFERRED_MAX = 1024
"""Of one vehicle, with those that only messages which UP still holds refer to: 16 MiB."""
SPARE_NS = 2 * 3600 * 1_000_000_000
"""A use is noted within an hour, and servers' clocks are not one."""


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


def is_full(uses: int, new: int) -> bool:
    """Tell whether some of a vehicle's dictionaries may have to make room for new ones."""
    return uses + new > KEPT_MAX


def choose(
    new: Iterable[DictionaryKey],
    known: Mapping[str, Mapping[bytes, int]],
    oldest_ns: Mapping[str, int],
    now_ns: int,
) -> RoomFor:
    """Return which new dictionaries are kept, and which former ones go for them.

    A former one goes only if no message refers to it any more: its last use is before the oldest message that UP holds.

    Args:
        new: in the order in which they came.
        known: when each that is kept was last used, by device.
        oldest_ns: when the oldest message that UP holds was stored, by device; of those that are full.
        now_ns: the hub's time.
    """
    used = {device: dict(some) for device, some in known.items()}
    choice = RoomFor([], [], set())
    for key in new:
        device, digest = key
        uses = used.setdefault(device, {})
        if digest in uses:
            continue
        while is_full(len(uses), 1):
            last = min(uses, key=uses.__getitem__)
            if uses[last] > min(now_ns - IN_USE_NS, oldest_ns.get(device, 0) - SPARE_NS):
                break
            del uses[last]
            choice.drop.append(DictionaryKey(device, last))
        in_use = sum(ns > now_ns - IN_USE_NS for ns in uses.values())
        if in_use >= KEPT_MAX or len(uses) >= REFERRED_MAX:
            choice.refuse.add(key)
            continue
        uses[digest] = now_ns
        choice.keep.append(key)
    return choice
