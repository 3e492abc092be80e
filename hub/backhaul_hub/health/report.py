"""The control plane's report on devices and streams for the command line, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec.structs import asdict as asdict_of

from backhaul_codec.protocol.vehicle_report import LINK_KINDS, VehicleReport
from backhaul_codec.protocol.words import ClockWord
from backhaul_hub.access.key_rotations import Rotation
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.lane_names import lanes_of
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.vehicles.core import Vehicles

# A server takes 1 MiB in a message.
_PAGE_BYTES = 512 << 10
_RANGES_SHOWN = 100
_LANES_SHOWN = 200


@dataclass(eq=False)
class Report:
    """The report's parts, as they are now.

    Args:
        clocks: what devices said last of their clocks.
        sync: tells how a device's heads and stamps stand: "heads" and "future".
        rotations: the newest of each device's key.
        vehicles: what devices say of themselves.
    """

    _continuity: Continuity
    _links: Mapping[str, DeviceLink]
    _lags: Mapping[tuple[str, str], int]
    _clocks: Mapping[str, ClockWord]
    _sync: Callable[[str], dict[str, Any]]
    _rotations: Mapping[str, Rotation]
    _vehicles: Vehicles

    def page(
        self, devices: Mapping[str, Device], readers: Sequence[UplinkReader], after: str
    ) -> bytes:
        """Return the JSON of the devices whose ids come after `after`, as many as a message takes.

        `next` is the id to ask after for the next page, null on the last one.
        """
        found: list[bytes] = []
        size, last, next_ = 0, after, None
        for device in sorted(device for device in devices if device > after):
            one = json.dumps(self._device(devices[device])).encode()
            size += len(one)
            if found and size > _PAGE_BYTES:
                next_ = last
                break
            found.append(one)
            last = device
        rest = json.dumps({"streams": [_stream(reader) for reader in readers], "next": next_})
        return b'{"devices": [' + b", ".join(found) + b"], " + rest.encode()[1:]

    def _device(self, known: Device) -> dict[str, Any]:
        device = known.id
        link = self._links.get(device, DeviceLink())
        current = self._continuity.current(device)
        # A device says itself which lanes its messages are of: its own first, then some of the rest.
        lanes = sorted(current, key=lambda lane: (lane not in lanes_of(known), lane))
        clock = self._clocks.get(device)
        refused = {
            bound: count
            for (whose, bound), count in self._continuity.refused.items()
            if whose == device
        }
        return {
            "device": device,
            "link": asdict(link),
            "clock": asdict(clock) if clock else None,
            "agent": self._agent(device, link),
            **self._sync(device),
            "nodes": known.nodes,
            "leaving": known.leaving,
            "revoked_ns": known.revoked_ns or None,
            "rotation": _rotation(self._rotations.get(device)),
            "lanes": {
                lane: self._lane(device, lane, *current[lane]) for lane in lanes[:_LANES_SHOWN]
            },
            "lanes_not_shown": len(lanes[_LANES_SHOWN:]),
            "former": self._former(device, {lane: epoch for lane, (epoch, _) in current.items()}),
            "refused": refused,
        }

    def _agent(self, device: str, link: DeviceLink) -> dict[str, Any]:
        """Return whether its agent runs, and the agent's report; None for an unknown one."""
        told = self._vehicles.told.get(device)
        return {
            "up": link.agent,
            "since_ns": link.agent_since_ns or None,
            "heard_ns": self._vehicles.heard_ns.get(device),
            "told_ns": told.told_ns if told else None,
            "version": told.report.version if told else None,
            "ledger_pct": told.report.ledger_pct if told else None,
            "disk_pct": told.report.disk_pct if told else None,
            "budget_pct": told.report.budget_pct if told else None,
            "link_bytes": _link_bytes(told.report) if told else None,
            "conditions": told.report.conditions if told else [],
            "machines": [asdict_of(each) for each in self._vehicles.identities.of(device).seen],
        }

    def _lane(self, device: str, lane: str, epoch: int, state: LaneState) -> dict[str, Any]:
        gaps = state.gaps
        return {
            "epoch": epoch,
            "watermark": state.watermark,
            "highest_seq": state.seen.highest,
            "said_seq": state.said,
            "gaps": gaps[:_RANGES_SHOWN],
            "gap_ranges": len(gaps),
            "explained": list(state.explained)[:_RANGES_SHOWN],
            "messages": state.messages,
            "repeats": state.repeats,
            "lost": state.lost,
            "bytes": state.body_bytes,
            "last_seen_ns": state.last_seen_ns,
            "lag_messages": self._lags.get((device, lane)),
        }

    def _former(self, device: str, current: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the lanes of former epochs that something is missing of."""
        found = []
        for key in sorted(self._continuity.of_device(device)):
            state = self._continuity.lanes[key]
            if current.get(key.lane) == key.epoch or state.whole:
                continue
            owed = state.owed
            found.append(
                {"lane": key.lane, "epoch": key.epoch, "watermark": state.watermark}
                | {"owed": owed[:_RANGES_SHOWN], "owed_ranges": len(owed)}
            )
        return found


def _link_bytes(report: VehicleReport) -> dict[str, int] | None:
    """Return the bytes of a vehicle's link in this month by kind; None if its agent does not say."""
    found = {kind: 1000 * kb for kind, kb in zip(LINK_KINDS, report.link_kb, strict=False)}
    return found or None


def _rotation(rotation: Rotation | None) -> dict[str, Any] | None:
    if rotation is None:
        return None
    shown = ("id", "state", "asked_ns", "changed_ns", "public_key", "why")
    return {key: value for key, value in asdict(rotation).items() if key in shown}


def _stream(reader: UplinkReader) -> dict[str, Any]:
    return {
        "stream": reader.stream,
        "read_seq": reader.position.seq,
        "quarantined": reader.position.quarantined,
    }
