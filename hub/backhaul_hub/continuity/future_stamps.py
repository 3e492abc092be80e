"""Stamps that lie in the hub's future: refused where the newest time wins, else only counted.

A merge keeps what has the greatest time, so one stamp from next year would stand until next year,
whatever anybody writes. Such a point is refused and its vehicle told what time it is, to stamp it
again. A telemetry reading does no such harm: it is kept, and counted. All here is pure.

Where the hub's own clock was wrong, heads from the future stand at both ends already. Then writes go on
above them, each a nanosecond later than the last, until that future has come: what is written by somebody
who knew of such a head must stand, or nothing could be written for as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from backhaul_codec.subjects import edge_subject, point_subject
from backhaul_codec.wire.addressed import Addressed
from backhaul_codec.wire.frame_layout import Layout
from backhaul_codec.wire.frame_points import build_times

SECOND_NS = 1_000_000_000
QUIET_NS = 60 * SECOND_NS
"""A device is well again that has sent readings for so long, and none from the future. One of several
programs with a wrong clock would otherwise be told of and taken back with every frame."""

ABOVE_NS = 1_000_000
"""How far above the newest head of a device its next stamps may be: a nanosecond for each write."""

log = structlog.get_logger(__name__)


class Restamp(NamedTuple):
    """A message for DOWN: the vehicle writes this point again, with a stamp that can be."""

    subject: str
    body: bytes


class FutureRule:
    """How far ahead of the hub's now a stamp may lie: `max_future_skew_s`, of hub.toml [clock]."""

    def __init__(self, max_future_skew_s: float) -> None:
        self.skew_ns = round(max_future_skew_s * SECOND_NS)

    def ahead_ns(self, time_ns: int, now_ns: int) -> int:
        """Return by how much a stamp is too far ahead, 0 where it may be."""
        return max(0, time_ns - now_ns - self.skew_ns)

    def too_early(
        self, written: Iterable[Addressed], now_ns: int, newest_ns: int | None = None
    ) -> list[Addressed]:
        """Return those points whose stamps lie too far ahead.

        Points that were written together count together or not at all: where this returns
        anything for a frame, the caller merges nothing of it, and sends `restamps` of all.

        Args:
            written: points of one message.
            now_ns: the hub's time.
            newest_ns: the newest stamp of the device's heads.
        """
        most_ns = now_ns + self.skew_ns
        if newest_ns is not None:
            most_ns = max(most_ns, newest_ns + ABOVE_NS)
        return [each for each in written if each.point.time > most_ns]


@dataclass(slots=True)
class _Ahead:
    """Readings of one device that were stamped too far ahead."""

    points: int = 0
    newest_ns: int = 0
    last_ns: int = 0
    told: bool = False


class FutureReadings:
    """Counts telemetry that is stamped too far ahead; it is kept like all other.

    Said once in the log for each device, and once when it is over. In memory: it counts from the start
    of the control plane.
    """

    def __init__(self, rule: FutureRule) -> None:
        self._rule = rule
        self._devices: dict[str, _Ahead] = {}

    def note(self, device: str, frame: Callable[[], Layout], newest_ns: int, now_ns: int) -> None:
        """Look at the times of a new frame, of which `newest_ns` is the greatest; `frame` gives its layout."""
        ahead_ns = self._rule.ahead_ns(newest_ns, now_ns)
        known = self._devices.get(device)
        if not ahead_ns:
            if known is not None and known.told and now_ns - known.last_ns >= QUIET_NS:
                known.told = False
                log.info("readings_no_longer_from_the_future", device=device, points=known.points)
            return
        known = self._devices.setdefault(device, _Ahead())
        known.points += sum(1 for time in build_times(frame()) if self._rule.ahead_ns(time, now_ns))
        known.newest_ns = max(known.newest_ns, newest_ns)
        known.last_ns = now_ns
        if not known.told:
            known.told = True
            log.warning("readings_from_the_future", device=device, ahead_s=ahead_ns / SECOND_NS)

    def report(self, device: str) -> dict[str, Any] | None:
        """Return a device's counts, None where all its stamps could be.

        `points`: how many; `newest_ns`: the furthest stamp; `last_ns`: when the last one was read.
        """
        known = self._devices.get(device)
        if known is None:
            return None
        return {"points": known.points, "newest_ns": known.newest_ns, "last_ns": known.last_ns}


def restamps(device: str, refused: Sequence[Addressed], now_ns: int) -> list[Restamp]:
    """Return the word to a device on refused points.

    The subject names the series, so DOWN keeps the newest refusal of each. The body has the stamp
    that was refused, to tell whether the vehicle still has that very point, and the hub's now, or a
    later time below which a stamp is of no effect.
    """
    return [
        Restamp(
            f"in.{device}.s.restamp.{_series(parent, point.node, point.type, point.key)}",
            json.dumps({"time": point.time, "now_ns": now_ns}, separators=(",", ":")).encode(),
        )
        for parent, point in refused
    ]


def _series(parent: str, node: str, type_: str, key: str) -> str:
    subject = edge_subject(parent, node, type_, key) if parent else point_subject(node, type_, key)
    return subject.removeprefix("p.")
