"""The newest telemetry of every series, in memory, for twins. Pure.

From frames and bundles, and from `e.heads` events, which a vehicle sends first of all when its link comes up:
then the newest is known at once, and the frames that come after it are older and change nothing.
Nothing of it is stored: after a restart of the control plane it fills again as vehicles send.

A stamp from the future (continuity/future_stamps.py) is left out, and counted: it would stand until that future has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import structlog

from backhaul_codec import CodecError, Opaque, Point, Value, decode
from backhaul_codec.kinds import BUNDLE, FRAME, SYSTEM
from backhaul_codec.points import JSON, SeriesName
from backhaul_codec.rules import plain_value, require_name, require_time
from backhaul_codec.state.json_values import value_from_json, value_to_json
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.state.newest import newest_in, newest_time
from backhaul_codec.strict.json import read_typed
from backhaul_codec.wire.frame_layout import Layout
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.future_stamps import FutureReadings, FutureRule
from backhaul_hub.db.change import RowChange
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

BEHIND_FRAMES = 256
"""In one turn: the hub is catching up, and listeners are told the newest of the turn alone."""

QUALITIES = ("synced", "holdover", "unset")
"""Of a clock, as a frame says it."""

SERIES_MAX = 20_000
"""Of one device. A device that invents names fills no memory but its own share."""

DeviceSeries = SeriesName


class Reading(NamedTuple):
    """One series' newest value. `time` in ns since the Unix epoch."""

    time: int
    value: Value


class NewReading(NamedTuple):
    """A reading that is newer than any before it."""

    device: str
    series: DeviceSeries
    reading: Reading
    quality: str | None = None
    """How good the vehicle's clock was, where that was said with it."""


class Readings:
    """Takes part in the reading of UP (uplink/consumer.py).

    Args:
        listening: whether `fresh` is to be filled.
        keep: whether the newest are kept at all; else frames are only looked at for their times.
    """

    def __init__(
        self, clock: Clock, future: FutureRule, *, listening: bool, keep: bool = True
    ) -> None:
        self.ahead = FutureReadings(future)
        self._clock = clock
        self._future = future
        self._listening = listening
        self._keep = keep
        self._devices: dict[str, dict[DeviceSeries, Reading]] = {}
        self._frames: list[tuple[Examined, bool]] = []
        """Frames and bundles of this turn, and whether each is new."""
        self.fresh: list[NewReading] = []
        """What is to be told to whoever listens; taken by who has told it."""

    def of(self, device: str) -> dict[DeviceSeries, Reading]:
        """Return the newest readings of a device."""
        return self._devices.get(device, {})

    def all(self) -> Iterator[tuple[str, DeviceSeries, Reading]]:
        """Yield the newest readings of all devices."""
        for device, known in self._devices.items():
            for series, reading in known.items():
                yield device, series, reading

    def restore(self, device: str, series: DeviceSeries, reading: Reading) -> None:
        """Take in a reading that was known before, and was told: it is not fresh."""
        known = self._devices.setdefault(device, {})
        if series not in known or known[series].time < reading.time:
            known[series] = reading

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in one message of a vehicle. Repeats change nothing."""
        uplink = said.uplink
        if uplink.kind is FRAME or uplink.kind is BUNDLE:
            self._frames.append((said, is_new))
        elif uplink.kind is SYSTEM and uplink.type == "heads" and self._keep:
            try:
                self._take(uplink.device, map(_row, _heads(said.body)), self._clock.now_ns())
            except CodecError as error:
                log.warning("readings_not_understood", device=uplink.device, error=str(error))

    def take_changes(self) -> Sequence[RowChange]:
        """Look into the frames of this turn; there is nothing to store of them.

        The last come first: in a backlog all those before them are older, and seen to be so at a
        fraction of the cost. Only where listeners keep pace with vehicles each frame has its turn.
        """
        frames, self._frames = self._frames, []
        now_ns = self._clock.now_ns() if frames else 0
        each = self._listening and len(frames) < BEHIND_FRAMES
        for said, is_new in frames if each else reversed(frames):
            self._take_frame(said, is_new, now_ns)
        return ()

    def stored(self) -> None:
        """Do nothing: the teller of readings looks for them itself."""

    def _take_frame(self, said: Examined, is_new: bool, now_ns: int) -> None:
        device, newest = said.key.device, said.newest
        if newest is not None:
            if is_new:
                self.ahead.note(device, said.frame_layout, newest.newest_ns, now_ns)
            if self._keep:
                self._take(device, newest.each(), now_ns, QUALITIES[newest.clock])
            return
        layout = said.frame_layout()
        newest_ns = newest_time(layout)
        if is_new:
            self.ahead.note(device, lambda: layout, newest_ns, now_ns)
        if self._keep and self._is_news(device, layout, newest_ns):
            self._take(device, map(_row, newest_in(layout)), now_ns, QUALITIES[layout.clock])

    def _is_news(self, device: str, layout: Layout, newest_ns: int) -> bool:
        """Return whether a frame may have a newer value of any of its series."""
        known = self.of(device)
        nodes = layout.nodes or repeat(layout.node)
        for node, type_, key in zip(nodes, layout.types, layout.keys or repeat(""), strict=False):
            before = known.get(DeviceSeries(node, type_, key))
            if before is None or before.time < newest_ns:
                return True
        return False

    def _take(
        self,
        device: str,
        rows: Iterable[tuple[DeviceSeries, int, Value]],
        now_ns: int,
        quality: str | None = None,
    ) -> None:
        known = self._devices.get(device)
        if known is None:
            known = self._devices[device] = {}
        latest_ns = now_ns + self._future.skew_ns
        fresh = self.fresh if self._listening else None
        for series, time, value in rows:
            before = known.get(series)
            if before is not None and before[0] >= time:
                continue
            if time > latest_ns or (before is None and len(known) >= SERIES_MAX):
                continue
            known[series] = reading = Reading(time, value)
            if fresh is not None:
                fresh.append(NewReading(device, series, reading, quality))


def _row(point: Point) -> tuple[DeviceSeries, int, Value]:
    return DeviceSeries(point.node, point.type, point.key), point.time, point.value


class _Heads(msgspec.Struct, frozen=True):
    """The JSON of an `e.heads` event: of each point its node, type, key, time in ns and value."""

    points: list[tuple[str, str, str, int, Any]]


def _heads(body: bytes) -> Iterator[Point]:
    """Yield the points of an `e.heads` event. Raises: CodecError."""
    event = decode(body).points[0].value
    if not isinstance(event, Opaque) or event.dtype != JSON:
        raise CodecError("heads whose value is no JSON", "heads")
    for node, type_, key, time, value in read_typed(event.data, _Heads).points:
        for name, what in ((node, "node"), (type_, "type"), (key, "key")):
            require_name(name, what)
        # A float is written with a point or an exponent, an integer without.
        plain = isinstance(value, int | float | str) and not isinstance(value, bool)
        meant = plain_value(value) if plain else value_from_json(value, "json")
        yield Point(node, type_, require_time(time), meant, key)


def point_json(device: str, key: HeadKey, head: Head) -> dict[str, Any]:
    """Return a head as JSON has it, in every answer and message of the hub."""
    value, dtype = value_to_json(head.value)
    return {
        "device": device,
        **({"parent": key.parent} if key.parent else {}),
        "node": key.node,
        "type": key.type,
        "key": key.key,
        "time": head.time,
        "value": value,
        "dtype": dtype,
        "tombstone": head.tombstone,
        "origin": head.origin,
    }
