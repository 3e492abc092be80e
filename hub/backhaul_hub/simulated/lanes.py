"""The uplink lanes of a simulated vehicle: its readings and words as messages, in order. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.kinds import BULK, LIVE, Lane
from backhaul_codec.points import JSON
from backhaul_codec.subjects import BUNDLE_SUBJECT, event_subject, frame_subject, point_subject
from backhaul_codec.wire.pass_frames import PassFrames
from backhaul_hub.simulated.vehicle import SERIES, Vehicle

HOUR_NS = 3_600_000_000_000


class Sourced(NamedTuple):
    """One message as UP has it from a source: `up.<device>.<leaf_subject>`, and its place in OUT."""

    device: str
    leaf_subject: str
    lane: Lane
    seq: int
    body: bytes


class Lanes:
    """Writes one vehicle's messages; the seqs of its two lanes are counted on.

    Args:
        vehicle: whose.
        epoch: of its ledger.
        bundles: write telemetry as agents do since bundles; else as before, a frame for each node.
    """

    __slots__ = ("_bundles", "_epoch", "_hour", "bulk_seq", "live_seq", "vehicle")

    def __init__(self, vehicle: Vehicle, epoch: int, *, bundles: bool = False) -> None:
        self.vehicle = vehicle
        self._bundles = bundles
        self.live_seq = 0
        self.bulk_seq = 0
        self._epoch = epoch
        self._hour = -1

    def introduction(self, time_ns: int) -> list[Sourced]:
        """Return a vehicle's words on itself at its start: model, firmware, threshold, a mark."""
        vehicle = self.vehicle
        said = (
            Point("vehicle", "model", time_ns + vehicle.ahead_ns, vehicle.model),
            Point("vehicle", "firmware", time_ns + vehicle.ahead_ns, vehicle.firmware),
            Point("config", "temp_max", time_ns + vehicle.ahead_ns, vehicle.temp_max_c),
        )
        return [*map(self._point, said), self._mark(time_ns, "start")]

    def frame(self, node: str, last_ns: int, step_ns: int, passes: int) -> list[Sourced]:
        """Return a frame, or a bundle, of a node whose last pass was at `last_ns`, after a mark where an hour began.

        `step_ns` is from one pass to the next.
        """
        marks = [self._mark(last_ns, "hour")] if last_ns // HOUR_NS != self._hour else []
        first_ns = last_ns - (passes - 1) * step_ns
        values = self.vehicle.readings(node, range(first_ns, last_ns + 1, step_ns))
        self.bulk_seq += 1
        body = _writer(node, passes, step_ns, self._bundles).message(
            first_ns + self.vehicle.ahead_ns, values, epoch=self._epoch, seq=self.bulk_seq
        )
        subject = BUNDLE_SUBJECT if self._bundles else frame_subject(node)
        return [*marks, Sourced(self.vehicle.id, subject, BULK, self.bulk_seq, body)]

    def link_up(self, time_ns: int) -> Sourced:
        """Return the mark of a link that came back."""
        return self._mark(time_ns, "link")

    def _mark(self, time_ns: int, why: str) -> Sourced:
        self._hour = time_ns // HOUR_NS
        lanes = {LIVE: self.live_seq + 1, BULK: self.bulk_seq}
        said = msgspec.json.encode({"epoch": self._epoch, "lanes": lanes, "why": why})
        time_ns += self.vehicle.ahead_ns
        return self._live(event_subject("mark"), Point("", "mark", time_ns, Opaque(JSON, said)))

    def _point(self, point: Point) -> Sourced:
        return self._live(point_subject(point.node, point.type, point.key), point)

    def _live(self, leaf_subject: str, point: Point) -> Sourced:
        self.live_seq += 1
        body = encode_point(point, epoch=self._epoch, seq=self.live_seq)
        return Sourced(self.vehicle.id, leaf_subject, LIVE, self.live_seq, body)


@lru_cache(maxsize=1024)
def _writer(node: str, passes: int, step_ns: int, bundles: bool) -> PassFrames:
    return PassFrames(node, SERIES[node], passes, step_ns, bundle=bundles)
