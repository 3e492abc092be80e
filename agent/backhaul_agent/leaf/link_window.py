"""How many messages of each lane may be under way to the hub: a pure core, no I/O.

A durable with flow control delivers until `max_ack_pending` messages are out, then asks whether they
have arrived, and goes on when the answer is back. So one round takes (bytes of the window) / (rate
of the link) + (its round trip), and nothing that is published meanwhile gets past the bytes that are
already in the link's socket. A large window fills the link and makes everything else wait, without a
bound: at 20 kbit/s the server's own pings wait too long, the link is taken for dead, and what was
under way is sent again, for ever. A small one leaves the link idle for a round trip in every round.

The window is what was acknowledged in `ROUND_S`, while the lane had more to send all the time. That
has its fixed point where a round takes `ROUND_S`: with 600 ms of round trip 86% of the link are
filled, and what is new waits for two seconds in the middle.

Every lane starts small, is allowed up to four times as much at every look, and half as much where
nothing was acknowledged for two rounds, so a link that is cut is begun anew with little.

`live` has that window for itself: what is in it is small, and goes first. All other lanes divide one
window among them, those that have a backlog by their number; one that has none keeps no more than its
part by the number of all, so that what they hold is no flood when all of them have one at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from backhaul_codec.kinds import LIVE

ROUND_S = 4.2
WINDOW_MIN, WINDOW_MAX = 2, 512
START_BYTES = 8 * 1024  # 3.3 s of a link of 20 kbit/s
MEASURE_S = 0.5  # shorter stretches say more about when we looked than about the link
GROW_MAX = 4.0
OFF_BY = 1.2  # an update of the durable is a write to the leaf's disk: not for less than this
SILENT_S = 2 * ROUND_S
WIRE_BYTES = 100  # of a message, beyond what the stream counts: subject and reply of the delivery
_NEW_PART = 0.5  # weight of the newest measurement


@dataclass(frozen=True, slots=True)
class LinkSample:
    """The leaf server's word on a lane's durable at `now_s` (monotonic).

    ``acked``: stream sequence up to which the hub has acknowledged. ``under_way``: delivered, not
    acknowledged. ``waiting``: not delivered yet. ``message_bytes``: the stream's mean; 0 where it is
    empty.
    """

    now_s: float
    acked: int
    under_way: int
    waiting: int
    message_bytes: float


@dataclass(slots=True)
class _Lane:
    message_bytes: float
    window: int
    acked: int = -1
    acked_s: float = 0.0  # when that last moved, or there was last nothing under way
    more: bool = False  # there is more to send than the window lets through
    more_s: float = -SILENT_S  # when that was seen last
    begun_s: float | None = None  # the acknowledgement measured from; there was always more since
    begun_bytes: float = 0.0


@dataclass(slots=True)
class LinkWindow:
    """The windows of all lanes of one link.

    ``guess_bytes_s``: what the link is said to carry; it bounds the first window, and is forgotten
    at the first measurement. ``typical_bytes``: by lane, what a message weighs before there is one.
    """

    guess_bytes_s: float
    typical_bytes: dict[str, int]
    adaptive: bool = True
    rate_bytes_s: float | None = None  # acknowledged a second while a lane had more to send
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _acked_bytes: float = 0.0  # of all lanes: they share the link
    _heard_s: float = 0.0  # when anything was acknowledged last, in any lane

    def __post_init__(self) -> None:
        for lane, size in self.typical_bytes.items():
            self._lanes[lane] = _Lane(size, self._start(lane, size))

    def lanes(self) -> Iterable[str]:
        """Return the lanes that have a window."""
        return self._lanes.keys()

    def window(self, lane: str) -> int:
        """Return how many messages of the lane may be under way."""
        return self._lanes[lane].window

    def busy(self, lane: str) -> bool:
        """Return whether the lane has been seen to have more to send than its window lets through."""
        return self._lanes[lane].more

    def sample(self, name: str, seen: LinkSample) -> int:
        """Take in the server's word on a lane; return its window from now on."""
        lane = self._lanes[name]
        if seen.message_bytes > 0:
            lane.message_bytes = seen.message_bytes + WIRE_BYTES
        if not self.adaptive:
            return lane.window
        moved = self._acknowledged(lane, seen)
        if moved:
            self._heard_s = seen.now_s
        lane.more = seen.waiting > 0
        if lane.more:
            lane.more_s = seen.now_s
        else:
            lane.begun_s = None
        if lane.more and moved:
            self._measure(lane, seen.now_s)
        elif self.rate_bytes_s is not None and not self._claims(lane, seen.now_s):
            self._give_back(name, seen.now_s)
        if moved or not seen.under_way:
            lane.acked_s = seen.now_s
        elif seen.now_s - max(lane.acked_s, self._heard_s) >= SILENT_S:
            lane.acked_s, lane.begun_s = seen.now_s, None
            lane.window = max(WINDOW_MIN, lane.window // 2)
            if self.rate_bytes_s is not None:
                self.rate_bytes_s /= 2
        return lane.window

    def _acknowledged(self, lane: _Lane, seen: LinkSample) -> bool:
        """Count the acknowledged messages since the last look; return whether there were any."""
        before, lane.acked = lane.acked, seen.acked
        if before < 0 or seen.acked < before:  # the first look, or the stream was made anew
            lane.begun_s, lane.acked_s = None, seen.now_s
            return False
        self._acked_bytes += (seen.acked - before) * lane.message_bytes
        return seen.acked > before

    def _measure(self, lane: _Lane, now_s: float) -> None:
        """Measure from one acknowledgement to a later one, and set the windows by it."""
        if lane.begun_s is None:
            lane.begun_s, lane.begun_bytes = now_s, self._acked_bytes
            return
        took_s = now_s - lane.begun_s
        if took_s < MEASURE_S:
            return
        measured = (self._acked_bytes - lane.begun_bytes) / took_s
        if self.rate_bytes_s is None:
            self.rate_bytes_s = measured
        else:
            self.rate_bytes_s += (measured - self.rate_bytes_s) * _NEW_PART
        lane.begun_s, lane.begun_bytes = now_s, self._acked_bytes
        for name in self._lanes:
            self._set(name, now_s)

    def _set(self, name: str, now_s: float) -> None:
        lane = self._lanes[name]
        wanted = min(self._wanted(name, now_s), lane.window * GROW_MAX, WINDOW_MAX)
        if not lane.window / OFF_BY < wanted < lane.window * OFF_BY:
            lane.window = _bounded(wanted)

    def _give_back(self, name: str, now_s: float) -> None:
        """Let a lane without a backlog keep its part by the number of all."""
        lane, wanted = self._lanes[name], self._wanted(name, now_s)
        if wanted < lane.window / OFF_BY:
            lane.window = _bounded(wanted)

    def _wanted(self, name: str, now_s: float) -> float:
        """Return the lane's part of the measured capacity, in messages."""
        assert self.rate_bytes_s is not None
        lane = self._lanes[name]
        parts = 1
        if name != LIVE:
            others = [each for other, each in self._lanes.items() if other != LIVE]
            claiming = [each for each in others if self._claims(each, now_s)]
            parts = len(claiming if self._claims(lane, now_s) else others)
        return self.rate_bytes_s * ROUND_S / lane.message_bytes / parts

    def _claims(self, lane: _Lane, now_s: float) -> bool:
        """Return whether the lane had a backlog lately: none that comes and goes makes it change."""
        return now_s - lane.more_s < SILENT_S

    def _start(self, name: str, message_bytes: float) -> int:
        most = self.guess_bytes_s * 4.0
        most = min(most, START_BYTES) if self.adaptive else most
        parts = 1 if name == LIVE else len(self.typical_bytes.keys() - {LIVE})
        return _bounded(most / message_bytes / parts)


def _bounded(messages: float) -> int:
    return max(WINDOW_MIN, min(WINDOW_MAX, round(messages)))
