"""When a vehicle that has connected can be asked for something: its leaf has told its subscriptions. Pure.

A leaf logs in first, and the hub hears a round trip later what it listens to. A source that is added before then asks
nobody, and its server waits 5 s before it asks again. So the sources of a vehicle wait until the server counts what its
leaf listens to, or its agent has asked something: a leaf sends that after what it listens to. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

WAIT_S_MAX = 5.0
"""Not for longer: as long as a question that reaches nobody would cost."""
_LOOK_S_MIN, _LOOK_S_MAX = 0.01, 0.25
_LOOK_PART = 0.05
"""The part of its time for which a server may be at work on these answers: each lists all leafs."""


class FirstInterest:
    """Knows the connections of which nothing was heard yet."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def connected(self, device: str, now_s: float) -> None:
        """Take in that a device's leaf has logged in (again)."""
        self._since_s.pop(device, None)  # so that it goes to the end
        self._since_s[device] = now_s

    def heard(self, device: str) -> bool:
        """Take in a word of a device, or that it is gone; return whether it was waited for."""
        return self._since_s.pop(device, None) is not None

    @property
    def awaited(self) -> Collection[str]:
        """Return the devices of which nothing was heard yet."""
        return self._since_s.keys()

    def counted(self, listens: Mapping[str, int], now_s: float) -> list[str]:
        """Take in to how many subjects devices listen, by their servers; return those that can be asked now.

        Those also of which nothing is heard for too long.
        """
        ready = [
            device
            for device, since_s in self._since_s.items()
            if listens.get(device, 0) > 0 or now_s - since_s >= WAIT_S_MAX
        ]
        for device in ready:
            del self._since_s[device]
        return ready

    def look_in_s(self, took_s: float, now_s: float) -> float | None:
        """Return in how many seconds the servers are to be asked, None for never; `took_s`: they took so long before."""
        if not self._since_s:
            return None
        age_s = now_s - next(reversed(self._since_s.values()))
        return max(min(age_s / 2, _LOOK_S_MAX), _LOOK_S_MIN, took_s / _LOOK_PART)
