"""The facts about vehicles that one look at the hub's health needs.

Of 100,000 vehicles nearly all are well, and nobody has to know more of these than their number. So each look asks who may not be well,
one kind of fault after the other, and gathers facts about these alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass

from backhaul_codec.protocol.words import ClockWord
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.health.judge import DeviceFacts, FleetCounts, LaneFacts
from backhaul_hub.sync.core import HubSync
from backhaul_hub.vehicles.core import Vehicles
from backhaul_runtime.clock import Clock

# Devices that are looked at in one go, before others of the control plane have their turn.
_DEVICES_EACH = 1000
_ONLY_DOWN = DeviceFacts(up=False)


@dataclass(eq=False)
class FleetSight:
    """Looks at all vehicles.

    Args:
        devices: tells all devices there are now.
        links: of the devices that have ever connected.
        lags: of the sources, by (device, lane), where they are known.
        clocks: what devices said last of their clocks.
        vehicles: what they say of themselves.
        sync: knows the heads of all devices.
    """

    _clock: Clock
    _continuity: Continuity
    _: KW_ONLY
    devices: Callable[[], Mapping[str, Device]]
    links: Mapping[str, DeviceLink]
    lags: Mapping[tuple[str, str], int]
    clocks: Mapping[str, ClockWord]
    vehicles: Vehicles
    sync: HubSync

    async def look(self) -> tuple[dict[str, DeviceFacts], FleetCounts]:
        """Return the facts about those of which something may be found, and how many there are."""
        known = self.devices()
        up, agents, agents_down = set[str](), 0, set[str]()
        for device, link in self.links.items():
            if link.up and device in known:
                up.add(device)
                if link.agent:
                    agents += 1
                elif link.agent is False:
                    agents_down.add(device)
        await asyncio.sleep(0)
        down, odd = known.keys() - up, self._odd() | agents_down
        await asyncio.sleep(0)
        owing = self._owing()
        seen: dict[str, DeviceFacts] = {}
        for number, device in enumerate(known.keys() & (down | odd | owing)):
            if number % _DEVICES_EACH == _DEVICES_EACH - 1:
                await asyncio.sleep(0)
            plain = device not in odd and device not in owing
            seen[device] = _ONLY_DOWN if plain else self.facts(device)
        unset = sum(facts.clock_unset for facts in seen.values())
        counts = FleetCounts(len(known), len(up), agents, len(agents_down), unset)
        return seen, counts._replace(arrivals=self._continuity.arrivals)

    def facts(self, device: str) -> DeviceFacts:
        """Return the facts about one device."""
        clock = self.clocks.get(device)
        link = self.links.get(device, DeviceLink())
        return DeviceFacts(
            link.up,
            clock is not None and clock.quality == "unset",
            self._lanes(device),
            self.vehicles.identities.judged(device, self._clock.now_ns()),
            shared=self.vehicles.identities.answerer(device) == "",
            clock_step_ns=clock.step_ns if clock is not None else None,
            heads_differ=self.sync.differs(device),
            heads_ahead_ns=self.sync.ahead_ns(device),
            agent=link.agent,
            told=self.vehicles.told.get(device),
        )

    def _odd(self) -> set[str]:
        """Return the devices whose clock, heads, machine or own report may be a finding."""
        clocks = {
            device
            for device, clock in self.clocks.items()
            if clock.quality == "unset" or clock.step_ns is not None
        }
        told = {device for device, told in self.vehicles.told.items() if told.report.conditions}
        return clocks | told | self.sync.odd() | self.vehicles.identities.doubted()

    def _owing(self) -> set[str]:
        """Return the devices that owe messages, and those behind a source that lags."""
        lagging = {device for (device, _), lag in self.lags.items() if lag}
        return lagging.union(key.device for key in self._continuity.not_whole())

    def _lanes(self, device: str) -> dict[str, LaneFacts]:
        current = self._continuity.current(device)
        lanes = {
            lane: _lane(state, self.lags.get((device, lane)))
            for lane, (_, state) in current.items()
        }
        for key in self._continuity.of_device(device):
            state = self._continuity.lanes[key]
            known = current.get(key.lane)
            if (known is None or known[0] != key.epoch) and not state.whole:
                lanes[f"{key.lane} of epoch {key.epoch}"] = LaneFacts(
                    owes=False, gap_ranges=len(state.owed), arrivals=state.messages, lag=None
                )
        return lanes


def _lane(state: LaneState, lag: int | None) -> LaneFacts:
    whole = state.whole
    return LaneFacts(
        owes=not whole or bool(lag),
        gap_ranges=0 if whole else len(state.gaps),
        arrivals=state.messages + state.repeats,
        lag=lag,
    )
