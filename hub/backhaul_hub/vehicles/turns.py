"""The turns of two machines with one identity that are online at once. Pure.

A server lets one leaf of a name in: each that comes cuts the other one off, which comes again at once, so
that links flap and nothing flows. So one of them is told to stay away for a while, then the other one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

TURN_S = 15.0
"""How long each has the link for itself."""
TOGETHER_S = 10.0
"""Two that are heard in turn within so long are online at once."""

Who = tuple[str, str, str]
"""A machine, its start, and the run of its agent."""


@dataclass(slots=True)
class _Device:
    heard: deque[tuple[Who, float]] = field(default_factory=lambda: deque(maxlen=3))
    holder: Who | None = None
    until_s: float = 0.0


class Turns:
    """Judges who of a device's machines stays away."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def hear(self, device: str, who: Who, now_s: float) -> float:
        """Take in that a machine was heard; return for how many seconds it is to stay away, 0: not at all.

        `now_s`: monotonic seconds.
        """
        known = self._devices.setdefault(device, _Device())
        if not known.heard or known.heard[-1][0] != who:
            known.heard.append((who, now_s))
        if known.holder is None and not self._together(known, now_s):
            return 0.0
        if known.holder != who and now_s < known.until_s:
            return known.until_s - now_s
        if known.holder != who:
            known.holder, known.until_s = who, now_s + TURN_S
        return 0.0

    def _together(self, known: _Device, now_s: float) -> bool:
        """Whether the machine that was heard now was there before another one: alone that cannot be."""
        if len(known.heard) < 3:
            return False
        (first, since_s), _, (last, _) = known.heard
        return first == last and now_s - since_s < TOGETHER_S
