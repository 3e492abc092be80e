"""The newest telemetry, sent ahead of a backlog: the hub's twin is fresh before history is. Pure.

While ``bulk`` lags, ``e.heads`` on ``live`` says the newest value of each series, for the twin alone: the
points themselves travel in their frames. It may cost a small part of the link, and it goes round: what
has waited longest is said first.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from backhaul_codec import Point
from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.merge import Head, HeadKey, join

LINK_PART = 0.05
BURST_S = 1.0  # of the whole link: what may go at once when it comes up
BURST_BYTES_MIN = 1024.0
EVERY_S = 2.0
LAG_S = 5.0  # what is younger is on its way, and no lag
MESSAGE_BYTES_MAX = 16 * 1024
MESSAGE_BYTES = 200  # what a message costs besides the values in it, on the wire
VALUE_BYTES_MAX = 256  # a larger one can wait for its frame
_DTYPES = ("float64", "int64", "text", "json")


class TokenBucket:
    """Lets ``rate`` units a second through, ``capacity`` at once. A debt is paid back first."""

    def __init__(self, rate: float, capacity: float, now_s: float) -> None:
        self.tokens = capacity
        self.rate = rate
        self._capacity = capacity
        self._at_s = now_s

    def refill(self, now_s: float) -> float:
        """Take in that time has passed; return the tokens there are."""
        self.tokens = min(self._capacity, self.tokens + self.rate * (now_s - self._at_s))
        self._at_s = now_s
        return self.tokens

    def spend(self, units: float) -> None:
        """Take tokens, also some that are not there yet."""
        self.tokens -= units


class NewestValues:
    """Remembers the newest value of each series, and which of them the hub was not told."""

    def __init__(self) -> None:
        self._newest: dict[HeadKey, Head] = {}
        self._untold: dict[HeadKey, None] = {}  # in the order in which they changed

    def take(self, points: Iterable[Point]) -> None:
        """Take in points, in any order; values that JSON cannot hold, or large ones, are left out."""
        for point in points:
            key, head = HeadKey.of("", point), Head.of(point)
            known = self._newest.get(key)
            newest = head if known is None else join(known, head)
            if newest is not known and _fits(newest):
                self._newest[key] = newest
                self._untold.setdefault(key)

    def untold(self, bytes_max: int) -> list[list[Any]]:
        """Return values for one message of about ``bytes_max`` bytes; they count as told."""
        chosen: list[list[Any]] = []
        room = bytes_max - MESSAGE_BYTES
        for key in list(self._untold):
            head = self._newest[key]
            entry = [key.node, key.type, key.key, head.time, value_to_json(head.value)[0]]
            room -= len(msgspec.json.encode(entry)) + 1
            if chosen and room < 0:
                break
            del self._untold[key]
            chosen.append(entry)
        return chosen

    def clear(self) -> None:
        """Count all as told: the frames themselves have arrived."""
        self._untold.clear()

    @property
    def waiting(self) -> int:
        """Return how many values the hub was not told."""
        return len(self._untold)


class Lag:
    """Tells a lane that lags from one whose newest messages are on their way."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()

    def behind(self, now_s: float, last_seq: int, watermark: int) -> bool:
        """Return whether the hub lacks something older than LAG_S. To be asked every few seconds."""
        self._ends.append((now_s, last_seq))
        while len(self._ends) > 1 and self._ends[1][0] <= now_s - LAG_S:
            self._ends.popleft()
        at_s, end = self._ends[0]
        return at_s <= now_s - LAG_S and watermark < end


class HeadsFirst:
    """Decides when ``e.heads`` is sent, and how much goes into it."""

    def __init__(self, link_bytes_s: float, now_s: float) -> None:
        self.values = NewestValues()
        self.due_s: float | None = None
        burst = max(BURST_BYTES_MIN, link_bytes_s * BURST_S)
        self._bucket = TokenBucket(link_bytes_s * LINK_PART, burst, now_s)
        self._lags: defaultdict[str, Lag] = defaultdict(Lag)
        self._fresh_link = False

    def carries(self, link_bytes_s: float) -> None:
        """Note the link's measured capacity: the budget is a part of it."""
        self._bucket.rate = link_bytes_s * LINK_PART

    def link_up(self, now_s: float) -> None:
        """Note that the link came up: all unconfirmed messages are a backlog."""
        self._fresh_link = True
        self.due_s = now_s

    def wanted(self, now_s: float, ends: Mapping[str, tuple[int, int]]) -> list[str]:
        """Return the lanes whose newest values are of use now, and are to be collected then.

        ``ends``: last seq and watermark of each.
        """
        self.due_s = now_s + EVERY_S
        behind = [name for name, end in ends.items() if self._lags[name].behind(now_s, *end)]
        if self._fresh_link:
            self._fresh_link = False
            behind = [name for name, (last_seq, watermark) in ends.items() if watermark < last_seq]
        if not behind:
            self.values.clear()
        return behind

    def message(self, now_s: float) -> list[list[Any]]:
        """Return the points of an ``e.heads`` to be sent now, none where there is no room for it.

        Tell its size to `told` then. There is room for it as it is before it is packed.
        """
        tokens = self._bucket.refill(now_s)
        if tokens < 2 * MESSAGE_BYTES or not self.values.waiting:
            return []
        return self.values.untold(min(math.floor(tokens), MESSAGE_BYTES_MAX))

    def told(self, message_bytes: int) -> None:
        """Take in that a message of so many bytes is sent, as the stream has it."""
        self._bucket.spend(message_bytes + MESSAGE_BYTES)


def _fits(head: Head) -> bool:
    if isinstance(head.value, float):
        return math.isfinite(head.value)
    value, dtype = value_to_json(head.value)
    return dtype in _DTYPES and len(msgspec.json.encode(value)) <= VALUE_BYTES_MAX
