"""Which lanes are pushed instead of sourced. Pure; times are monotonic seconds.

A lane is asked to sleep once the hub confirms it all but to the last few messages. From then on each new message is
pushed, also while the hub still sources the lane: it stops once it has everything before the first push. A lane is
woken where the hub's watermark stands still though something was pushed, where more waits than may be under way, and
where the lane does not run. With the link, all lanes begin anew: the hub sources a vehicle that connects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from backhaul_agent.uplink.pushing import PushRule
from backhaul_codec.kinds import LIVE, Lane

SETTLED_S = 3.0
"""A lane is asked to sleep once it has been calm for so long."""
OWED_MAX = 8
"""Messages that the hub has not confirmed of a calm lane: its watermark is told every few seconds."""
WAIT_S_MAX = 15.0
"""For so long a lane is pushed for which the hub still waits for messages from before."""
PATIENCE_S = 15.0
"""A watermark that stands still for so long has its lane woken: the hub tells one every ten seconds at least, and a slow link takes two more."""
TERSE_PATIENCE_S = 45.0
"""Likewise of a hub that has said that it tells them more seldom, every twenty seconds."""
BEHIND_LOOKS_MAX = 2
"""A lane is behind for a moment with each message."""
BURST_S = 2.0
"""No window keeps a push back, so what is pushed at once takes the link for so long at most."""
BURST_BYTES_MAX = 64 * 1024
UNMEASURED_BYTES = 8 * 1024
"""Of a link that was not measured: as much as a source's first window, 3.3 s at 20 kbit/s."""
FIRST_LOOKS = 5
"""For so many looks after the link came up, new messages of `live` go beside as well: the newest values are at the hub a
round trip and more before a source is set up, which brings them once more."""
FIRST_BYTES_MAX = 4 * 1024
"""And so many bytes at most."""
AWAKE_S_MIN, AWAKE_S_MAX = 15.0, 900.0
"""A lane that was woken is not asked to sleep before; twice as long each time, until it has slept for as long."""


class TrickleView(NamedTuple):
    """A lane as the agent has it now."""

    appended: int
    """The last seq of the current epoch in OUT."""
    watermark: int
    owed_bytes: int
    """Of the messages that the hub has not confirmed."""
    runs: bool
    """Whether the current epoch is being appended."""
    behind: bool = False
    """Whether something committed, or asked for again, is still to be appended, or to be taken by the hub."""


@dataclass(slots=True)
class _Lane:
    """The record of one lane since the link came up."""

    calm_since_s: float | None = None
    after: int | None = None
    """Messages behind this seq are pushed; None: none is."""
    asked_s: float = 0.0
    asleep: bool = False
    """Whether the hub has said that it does not source it."""
    slept_since_s: float = 0.0
    watermark: int = -1
    moved_s: float = 0.0
    """When the watermark moved last, or everything was confirmed."""
    behind_looks: int = 0
    """How many looks in a row have seen it behind."""
    flooded: bool = False
    """Whether more was to be pushed than may be under way."""
    not_before_s: float = 0.0
    awake_s: float = AWAKE_S_MIN


class PushPolicy(PushRule):
    """Decides for all lanes of a vehicle.

    Args:
        owed_bytes_max: how many bytes of a pushed lane the hub may owe a word on.
        rate_bytes_s: the bytes that the link is said to carry in a second.
        measured: whether it was measured, or is known.
    """

    def __init__(
        self, owed_bytes_max: float, rate_bytes_s: float = math.inf, *, measured: bool = False
    ) -> None:
        self.owed_bytes_max = owed_bytes_max
        self._rate_bytes_s = rate_bytes_s
        self._burst_bytes_max = 0.0
        # By whether it is of `live`, which nothing else is to hold up: bytes pushed that the link may still carry.
        self._burst_bytes = {True: 0.0, False: 0.0}
        self._looked_s: float | None = None
        self.carries(rate_bytes_s, measured=measured)
        self.patience_s = PATIENCE_S
        self.epoch = 0
        self.wakes = 0
        """How often a lane was woken."""
        self._lanes: dict[Lane, _Lane] = {}
        self._first_looks, self._first_bytes = 0, 0

    def carries(self, rate_bytes_s: float, *, measured: bool = True) -> None:
        """Take in how many bytes the link carries in a second."""
        self._rate_bytes_s = rate_bytes_s
        most = BURST_BYTES_MAX if measured else UNMEASURED_BYTES
        self._burst_bytes_max = min(most, BURST_S * rate_bytes_s)

    def link(self) -> None:
        """Take in that the link is gone, or came up, or that nobody knows: all lanes are sourced."""
        self._lanes.clear()
        self._first_looks, self._first_bytes = FIRST_LOOKS, FIRST_BYTES_MAX

    def look(self, epoch: int, lanes: Mapping[Lane, TrickleView], now_s: float) -> bool:
        """Take in the lanes while the link is up; return whether the hub is to be told something else than before."""
        before = self.word
        self._first_looks = max(0, self._first_looks - 1)
        if epoch != self.epoch:
            self.epoch = epoch
            self._lanes.clear()
        carried = self._rate_bytes_s * (now_s - self._looked_s) if self._looked_s is not None else 0
        self._looked_s = now_s
        for live, under_way in self._burst_bytes.items():
            self._burst_bytes[live] = max(0.0, under_way - carried)
        for name, view in lanes.items():
            lane = self._lanes.setdefault(name, _Lane(moved_s=now_s))
            if view.watermark != lane.watermark or view.appended <= view.watermark:
                lane.watermark, lane.moved_s = view.watermark, now_s
            lane.behind_looks = lane.behind_looks + 1 if view.behind else 0
            if lane.after is None:
                self._rest(lane, view, now_s)
            elif self._must_wake(lane, view, now_s):
                self._wake(lane, now_s)
            elif lane.asleep and now_s - lane.slept_since_s > lane.awake_s:
                lane.awake_s = AWAKE_S_MIN
        return self.word != before

    def _rest(self, lane: _Lane, view: TrickleView, now_s: float) -> None:
        """Ask for a lane to be put to sleep once it has been calm for long enough."""
        calm = (
            view.runs
            and not view.behind
            and view.appended - view.watermark <= OWED_MAX
            and view.owed_bytes <= self.owed_bytes_max / 2
        )
        if not calm:
            lane.calm_since_s = None
        elif lane.calm_since_s is None:
            lane.calm_since_s = now_s
        elif now_s >= max(lane.calm_since_s + SETTLED_S, lane.not_before_s):
            lane.after, lane.asked_s, lane.moved_s = view.appended, now_s, now_s

    def _must_wake(self, lane: _Lane, view: TrickleView, now_s: float) -> bool:
        return (
            not view.runs
            or lane.behind_looks > BEHIND_LOOKS_MAX
            or lane.flooded
            or view.owed_bytes > self.owed_bytes_max
            or (not lane.asleep and now_s - lane.asked_s > WAIT_S_MAX)
            or now_s - lane.moved_s > self.patience_s
        )

    def _wake(self, lane: _Lane, now_s: float) -> None:
        self.wakes += lane.asleep
        lane.after, lane.asleep, lane.calm_since_s, lane.flooded = None, False, None, False
        lane.not_before_s = now_s + lane.awake_s
        lane.awake_s = min(2 * lane.awake_s, AWAKE_S_MAX)

    @property
    def word(self) -> dict[Lane, int]:
        """Return the word to the hub: the lanes that are pushed, each with the last seq that was not."""
        return {name: lane.after for name, lane in self._lanes.items() if lane.after is not None}

    @property
    def unsettled(self) -> bool:
        """Whether a lane waits for the hub's leave."""
        return any(lane.after is not None and not lane.asleep for lane in self._lanes.values())

    def heard(self, asleep: list[Lane], now_s: float) -> None:
        """Take in the hub's answer to the newest word: the lanes that it does not source."""
        for name, lane in self._lanes.items():
            now = lane.after is not None and name in asleep
            if now and not lane.asleep:
                lane.slept_since_s = now_s
            elif lane.asleep and not now:
                lane.asked_s = now_s  # the hub has begun anew
            lane.asleep = now

    def pushes(self, name: Lane, seq: int, size: int, owed_bytes: int) -> bool:
        """Tell whether a new message is pushed; with too much under way none is before the lane was woken."""
        lane = self._lanes.get(name)
        if lane is None or lane.after is None or seq <= lane.after:
            return name == LIVE and self._is_first(size)
        lane.flooded = lane.flooded or owed_bytes > self.owed_bytes_max
        return self._has_room(name, lane, size)

    def _is_first(self, size: int) -> bool:
        first = self._first_looks > 0 and size <= self._first_bytes
        if first:
            self._first_bytes -= size
        return first

    def pushes_again(self, name: Lane, size: int) -> bool:
        """Tell whether a message is pushed that the hub has asked for again; where these are many, the lane is woken.

        Its seq does not matter: while the lane is pushed nothing else brings the message.
        """
        lane = self._lanes.get(name)
        return lane is not None and lane.after is not None and self._has_room(name, lane, size)

    def _has_room(self, name: Lane, lane: _Lane, size: int) -> bool:
        live = name == LIVE
        under_way = self._burst_bytes[live] + size
        # However slow the link is, a message by itself is no burst.
        lane.flooded = lane.flooded or size < under_way > self._burst_bytes_max
        if not lane.flooded:
            self._burst_bytes[live] = under_way
        return not lane.flooded

    def asleep(self, name: Lane) -> bool:
        """Tell whether the hub does not source a lane."""
        lane = self._lanes.get(name)
        return lane is not None and lane.asleep
