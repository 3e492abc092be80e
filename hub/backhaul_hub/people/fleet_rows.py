"""All devices that a person sees, a short row each, for the page's table of the fleet.

The report of `devices` says all of a device in a thousand bytes; of 10,000 devices nobody asks that every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backhaul_codec.assurance.conditions import Condition
from backhaul_codec.state.json_values import parse_path, value_to_json
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import encode_token
from backhaul_hub import questions
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.device import FLEET, Device, DeviceLink
from backhaul_hub.people.scope import Scope
from backhaul_hub.sync.core import HubSync
from backhaul_hub.sync.newest_readings import DeviceSeries, Readings

_ROWS_MAX = 2_000
"""Of one answer: half a megabyte."""
_ROWS_EACH = 100
_CONDITIONS_SHOWN = 5
_VALUE_CHARS_MAX = 200
_NAMES_MAX = 500


@dataclass(eq=False)
class FleetRows:
    """Answers how the devices are.

    Args:
        known: tells all devices.
        core: has their heads, and the tree.
        readings: has their newest telemetry.
        shown: tells the conditions of now, the worst first.
    """

    _continuity: Continuity
    _links: Mapping[str, DeviceLink]
    _lags: Mapping[tuple[str, str], int]
    _known: Callable[[], Mapping[str, Device]]
    _core: HubSync
    _readings: Readings
    _shown: Callable[[], Sequence[Condition]]

    async def fleet(self, scope: Scope, question: questions.FleetQuestion) -> dict[str, Any]:
        """Return a page of rows: of one device, or those after an id, with the newest values of some series.

        Raises:
            CodecError: a series is written otherwise than node.type or node.type.key.
        """
        series = [DeviceSeries(*parse_path(path)) for path in question.series]
        conditions: dict[str, list[Condition]] = {}
        for each in self._shown():
            conditions.setdefault(each.device, []).append(each)
        if question.device is not None:
            scope.require_device(question.device)
            after = [question.device]
        else:
            after = [device for device in scope.devices if device > question.after]
        known, rows = self._known(), []
        for number, device in enumerate(after[:_ROWS_MAX]):
            if number % _ROWS_EACH == _ROWS_EACH - 1:
                await asyncio.sleep(0)
            if device in known:
                row = self._row(known[device], conditions.get(device, []), series)
                rows.append(row | {"groups": self._groups(scope, device)})
        next_ = after[_ROWS_MAX - 1] if len(after) > _ROWS_MAX else None
        return {"devices": rows, "next": next_}

    async def series(self, scope: Scope, question: questions.SeriesQuestion) -> dict[str, Any]:
        """Return the series there are, each with its number of devices: those of most devices first."""
        devices = scope.devices
        if question.device is not None:
            scope.require_device(question.device)
            devices = [question.device]
        counted: dict[tuple[str, str, str], int] = {}
        for number, device in enumerate(devices):
            if number % _ROWS_EACH == _ROWS_EACH - 1:
                await asyncio.sleep(0)
            for name in self._readings.of(device):
                counted[name] = counted.get(name, 0) + 1
        most = sorted(counted, key=lambda name: (-counted[name], name))
        found = [{"series": path_of(*name), "devices": counted[name]} for name in most[:_NAMES_MAX]]
        return {"series": found, "not_shown": max(0, len(most) - _NAMES_MAX)}

    def _row(
        self, known: Device, conditions: Sequence[Condition], series: Sequence[DeviceSeries]
    ) -> dict[str, Any]:
        device = known.id
        link = self._links.get(device, DeviceLink())
        newest = owed = gaps = 0
        lag: int | None = None
        for lane, (_, state) in self._continuity.current(device).items():
            newest = max(newest, state.last_seen_ns)
            if not state.whole:
                owed += max(0, max(state.said, state.seen.highest) - state.watermark)
                gaps += len(state.gaps)
            behind = self._lags.get((device, lane))
            if behind is not None:
                lag = behind + (lag or 0)
        return {
            "device": device,
            "up": link.up,
            "since_ns": link.since_ns or None,
            "agent": link.agent,
            "newest_ns": newest or None,
            "lag": lag,
            "owed": owed,
            "gaps": gaps,
            "revoked": bool(known.revoked_ns),
            "conditions": [[each.severity, each.code, each.about] for each in _first(conditions)],
            "conditions_not_shown": max(0, len(conditions) - _CONDITIONS_SHOWN),
            "values": [self._value(device, each) for each in series],
        }

    def _value(self, device: str, series: DeviceSeries) -> list[Any] | None:
        reading = self._readings.of(device).get(series)
        head = self._core.heads.get(device, HeadKey("", *series))
        if head is not None and not head.tombstone and (not reading or reading.time < head.time):
            value, time = head.value, head.time
        elif reading is not None:
            value, time = reading.value, reading.time
        else:
            return None
        said = value_to_json(value)[0]
        if isinstance(said, str | list | dict):
            said = str(said)[:_VALUE_CHARS_MAX]
        return [said, time]

    def _groups(self, scope: Scope, device: str) -> list[str]:
        above = self._core.tree.ancestors(device) - {FLEET}
        return sorted(each for each in above if scope.sees(each))


def path_of(node: str, type_: str, key: str) -> str:
    """Return how a series is written: node.type, or node.type.key."""
    return ".".join(map(encode_token, (node, type_, key) if key else (node, type_)))


def _first(conditions: Sequence[Condition]) -> Sequence[Condition]:
    return conditions[:_CONDITIONS_SHOWN]
