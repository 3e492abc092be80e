"""What is wrong at the hub, judged from one look at streams, readers and devices. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backhaul_codec.conditions import Conditions, Finding, Growth, Place

from . import health_kinds as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from .config import Health
    from .jetstream import Json


_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """One lane of a device."""

    owes: bool
    """Whether the vehicle has said that it has more, or its source lags."""
    gap_ranges: int
    arrivals: int
    """Messages that ever came of it."""
    lag: int | None
    """Of its source, by the server's account; None where it is not known."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device."""

    up: bool
    """Whether its link is."""
    clock_unset: bool = False
    lanes: Mapping[str, LaneFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What one look has seen."""

    streams: list[Json] | None
    """Each stream's info; None where the server does not answer."""
    consumers: list[Json] = field(default_factory=list)
    read: Mapping[str, int] = field(default_factory=dict)
    """The last sequence that was read of each UP stream."""
    quarantined: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, DeviceFacts] = field(default_factory=dict)
    certificates: Mapping[str, datetime] = field(default_factory=dict)
    """Until when each lasts, by what it belongs to."""
    flooding: Mapping[str, str] = field(default_factory=dict)
    """What devices that are kept out have sent too much of."""


class HubHealth:
    """The hub's conditions, by looks in a row."""

    def __init__(self, config: Health) -> None:
        after_s = {kinds.LINK_DOWN: config.link_down_after_s}
        table = [
            replace(kind, after_s=after_s.get(kind.code, kind.after_s)) for kind in kinds.KINDS
        ]
        self.conditions = Conditions(table, config.patience)
        self._config = config
        self._quarantine = Growth(config.quarantine_shown_s)
        self._arrivals: dict[Place, int] = {}

    def look(self, facts: Facts, now_s: float, now_ns: int) -> None:
        """Take in one look; `now_s` is monotonic, `now_ns` since the Unix epoch."""
        self.conditions.note(list(self._findings(facts, now_s, now_ns)), now_s, now_ns)

    def _findings(self, facts: Facts, now_s: float, now_ns: int) -> Iterator[Finding]:
        if facts.streams is None:
            yield Finding(kinds.JETSTREAM_SILENT)
        for info in facts.streams or []:
            yield from self._of_stream(info, facts.read)
        for info in facts.consumers:
            yield from self._of_consumer(info)
        for stream, more in self._quarantine.lately(facts.quarantined, now_s).items():
            yield Finding(kinds.QUARANTINE_GREW, Place("", stream), f"{more} more")
        for device, seen in facts.devices.items():
            yield from self._of_device(device, seen)
        for device, why in facts.flooding.items():
            yield Finding(kinds.DEVICE_FLOODING, Place(device), why)
        for name, until in facts.certificates.items():
            days = until.timestamp() / _DAY_S - now_ns / 1e9 / _DAY_S
            if days < self._config.certificate_days_min:
                detail = f"on {until:%Y-%m-%d}, {days:.0f} days from now"
                yield Finding(kinds.CERTIFICATE_EXPIRES, Place("", name), detail)
        self._arrivals = {
            Place(device, lane): known.arrivals
            for device, seen in facts.devices.items()
            for lane, known in seen.lanes.items()
        }

    def _of_stream(self, info: Json, read: Mapping[str, int]) -> Iterator[Finding]:
        name, bytes_max = info["config"]["name"], info["config"].get("max_bytes", -1)
        held, place = info["state"]["bytes"], Place("", info["config"]["name"])
        if bytes_max > 0 and held > self._config.stream_full_part * bytes_max:
            part = f"{100 * held / bytes_max:.0f}% of {bytes_max} bytes"
            yield Finding(kinds.STREAM_FULL, place, part)
        if late := _late_replicas(info, self._config.replica_lag_max):
            yield Finding(kinds.REPLICA_BEHIND, place, ", ".join(late))
        behind = info["state"]["last_seq"] - read.get(name, info["state"]["last_seq"])
        if behind > self._config.reader_lag_max:
            yield Finding(kinds.READER_BEHIND, place, f"{behind} messages")

    def _of_consumer(self, info: Json) -> Iterator[Finding]:
        place = Place("", f"{info['stream_name']}/{info['name']}")
        if (lag := info["num_pending"]) > self._config.consumer_lag_max:
            yield Finding(kinds.CONSUMER_LAG, place, f"{lag} messages")
        if (pending := info["num_ack_pending"]) > self._config.ack_pending_max:
            yield Finding(kinds.ACK_PENDING, place, f"{pending} messages")

    def _of_device(self, device: str, seen: DeviceFacts) -> Iterator[Finding]:
        if not seen.up:
            yield Finding(kinds.LINK_DOWN, Place(device))
        if seen.clock_unset:
            yield Finding(kinds.CLOCK_UNSET, Place(device))
        for lane, known in seen.lanes.items():
            place = Place(device, lane)
            if known.gap_ranges:
                yield Finding(kinds.GAP_OPEN, place, f"{known.gap_ranges} stretches")
            if known.owes and known.arrivals == self._arrivals.get(place):
                stalled = kinds.LANE_STALLED if known.lag else kinds.SOURCE_STALLED
                lag = "of a lag not known" if known.lag is None else f"at a lag of {known.lag}"
                yield Finding(stalled, place, lag)


def _late_replicas(info: Json, lag_max: int) -> list[str]:
    replicas = (info.get("cluster") or {}).get("replicas") or []
    return [
        f"{each.get('name', '?')} is {'away' if each.get('offline') else 'behind'}"
        for each in replicas
        if each.get("offline") or not each.get("current", True) or each.get("lag", 0) > lag_max
    ]
