"""The messages that the hub speaks to vehicles beside DOWN. Pure; times are monotonic seconds.

Every message that DOWN has taken is said once more (`protocol/push.py`): a vehicle that does not source DOWN hears it
at once, and of one that does not listen the server drops it. So nobody has to know here who sleeps. Only watermarks
are said more seldom: written into DOWN each time, they would be most of what an idle link carries. One that a vehicle
waits for, as it has sent a dictionary, is said at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from backhaul_codec.protocol.push import WAKE, terse

WATERMARK_S_MIN = 9.0
"""Between two watermarks of a lane; a vehicle gives a lane that it pushes up after 15 s without one."""
TERSE_S_MIN = 20.0
"""Likewise of a vehicle that has said that it waits for longer, 45 s, and reads terse ones."""
WATERMARK_MESSAGES = 32
"""A watermark that is further by so many is said at once."""
LINKED_S = 4.0
"""So long after a link has come up its vehicle is woken: it may not have noticed that the link was gone. Sooner it may
not be heard to listen over a slow link; one that has noticed does not listen yet."""
WAKES_PER_S = 100
"""So many vehicles at most are woken in a second: each sources DOWN then, resets a durable, and asks where DOWN ends."""
_WATERMARK = "s.watermark."


class Said(NamedTuple):
    """A message to say to a device: of its own subject, as in IN."""

    device: str
    leaf_subject: str
    body: bytes


class _Words(msgspec.Struct):
    epoch: int = 0
    seq: int = 0
    fork: int = 0


@dataclass(slots=True)
class _Lane:
    """The watermark of one lane that was said last, and a newer one that waits."""

    words: _Words
    said_s: float
    """When its seq was said first."""
    newer: tuple[Said, _Words] | None = None
    awaited: tuple[int, int] | None = None
    """Epoch and seq from which on a watermark does not wait."""


# The hub wrote them itself: nothing in them needs a strict reader.
_read = msgspec.json.Decoder(_Words).decode


class Beside:
    """Decides for all devices."""

    def __init__(self) -> None:
        self._lanes: dict[str, dict[str, _Lane]] = {}
        """By device and leaf subject."""
        self._waiting: set[tuple[str, str]] = set()
        self._due: list[tuple[float, str, str]] = []
        """A heap of when they are looked at; some wait no more, or for longer by then."""
        self._linked: set[str] = set()
        self._wakes: dict[str, float] = {}
        """When each is woken."""
        self._free_s = 0.0
        """When the next may be woken that is not in `_wakes` yet."""
        self._terse: set[str] = set()

    def terse(self, device: str, reads: bool) -> bool:
        """Take in whether a device reads terse watermarks, and waits for them; return whether it gets them."""
        if reads != (device in self._terse):
            (self._terse.add if reads else self._terse.discard)(device)
            for leaf_subject, lane in self._lanes.get(device, {}).items():
                if lane.newer is not None:
                    self._wait(device, leaf_subject, lane)
        return reads

    def _wait(self, device: str, leaf_subject: str, lane: _Lane) -> None:
        self._waiting.add((device, leaf_subject))
        heappush(self._due, (lane.said_s + self._pause_s(device), device, leaf_subject))

    def stored(self, subject: str, body: bytes, now_s: float) -> Said | None:
        """Take in that a stream has taken a message; return the one to say now, if any."""
        kind, _, rest = subject.partition(".")
        device, _, leaf_subject = rest.partition(".")
        if kind != "in" or not leaf_subject:
            return None
        said = Said(device, leaf_subject, body)
        return self._watermark(said, now_s) if leaf_subject.startswith(_WATERMARK) else said

    def _watermark(self, said: Said, now_s: float) -> Said | None:
        try:
            words = _read(said.body)
        except msgspec.MsgspecError:
            return said
        pause_s = self._pause_s(said.device)
        lanes, place = self._lanes.setdefault(said.device, {}), (said.device, said.leaf_subject)
        lane = lanes.get(said.leaf_subject)
        if lane is not None and now_s - lane.said_s < pause_s and _may_wait(lane, words):
            lane.newer = said, words
            if place not in self._waiting:
                self._wait(*place, lane)
            return None
        # A word on the same seq, as that nobody can prove it, does not put off the next seq.
        stands = lane is not None and (words.epoch, words.seq) == (lane.words.epoch, lane.words.seq)
        new = lanes[said.leaf_subject] = _Lane(words, lane.said_s if lane and stands else now_s)
        if lane and lane.awaited and not _reaches(words, lane.awaited):
            new.awaited = lane.awaited
        self._waiting.discard(place)
        return self._short(said)

    def expect(self, device: str, lane: str, epoch: int, seq: int) -> None:
        """Take in that a device waits for a watermark of a lane that goes up to this message."""
        known = self._lanes.get(device, {}).get(f"{_WATERMARK}{lane}")
        if known is not None and not _reaches(known.words, (epoch, seq)):
            known.awaited = epoch, seq
            heappush(self._due, (0.0, device, f"{_WATERMARK}{lane}"))

    def _pause_s(self, device: str) -> float:
        return TERSE_S_MIN if device in self._terse else WATERMARK_S_MIN

    def _short(self, said: Said) -> Said:
        """Return a watermark as its device is told it."""
        short = terse(said.leaf_subject, said.body) if said.device in self._terse else None
        return Said(said.device, *short) if short else said

    def linked(self, device: str, now_s: float) -> None:
        """Take in that a device's link has come up: it may have missed some."""
        self._forget(device)  # it may have said that it reads terse ones before this was heard
        self._linked.add(device)
        self.wake(device, now_s + LINKED_S)

    def gone(self, device: str) -> None:
        """Take in that a device's link is gone."""
        self._forget(device)
        self._linked.discard(device)
        self._terse.discard(device)

    def _forget(self, device: str) -> None:
        self._wakes.pop(device, None)
        for leaf_subject in self._lanes.pop(device, {}):
            self._waiting.discard((device, leaf_subject))

    def wake_all(self, now_s: float) -> None:
        """Have all devices woken whose links are up, bit by bit: the hub may have failed to say something to them."""
        for device in sorted(self._linked):
            self.wake(device, now_s)

    def wake(self, device: str, at_s: float) -> None:
        """Have a device woken, then or as soon as others let it; not later than it was to be already."""
        if device not in self._wakes:
            self._wakes[device] = max(at_s, self._free_s)
            self._free_s = self._wakes[device] + 1 / WAKES_PER_S

    def due(self, now_s: float) -> list[Said]:
        """Return the messages to say by now."""
        due = []
        while self._due and self._due[0][0] <= now_s:
            _, device, leaf_subject = heappop(self._due)
            if (device, leaf_subject) not in self._waiting:
                continue
            lane = self._lanes[device][leaf_subject]
            if lane.newer is None:
                continue
            said, words = lane.newer
            if now_s < lane.said_s + self._pause_s(device) and _may_wait(lane, words):
                self._wait(device, leaf_subject, lane)
            else:
                due.append(self._short(said))
                self._lanes[device][leaf_subject] = _Lane(words, now_s)
                self._waiting.discard((device, leaf_subject))
        for device, at_s in list(self._wakes.items()):
            if at_s <= now_s:
                del self._wakes[device]
                due.append(Said(device, WAKE, b""))
        return due


def _reaches(words: _Words, awaited: tuple[int, int]) -> bool:
    epoch, seq = awaited
    return words.epoch == epoch and words.seq >= seq


def _may_wait(lane: _Lane, words: _Words) -> bool:
    before = lane.words
    if lane.awaited is not None and _reaches(words, lane.awaited):
        return False
    return (words.epoch, words.fork) == (before.epoch, before.fork) and (
        before.seq <= words.seq < before.seq + WATERMARK_MESSAGES
    )
