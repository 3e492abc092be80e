"""A look at a fleet's health leaves out only vehicles of which there is nothing to find."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec.points import Point
from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_codec.protocol.words import ClockWord
from backhaul_codec.wire.addressed import Addressed
from backhaul_hub.config import Health
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.health.fleet_sight import FleetSight
from backhaul_hub.health.judge import HealthFacts, HubHealth
from backhaul_hub.sync.core import HubSync
from backhaul_hub.vehicles.core import Told, Vehicles
from backhaul_hub.vehicles.identities import Evidence, Identity
from tests.support.agent_clock import FakeClock

S = 1_000_000_000
NOW_NS = 1_790_000_000 * S
KNOWN = [f"VID-{number}" for number in range(6)]
STATES = st.sampled_from(
    [
        "up",
        "down",
        "gap",
        "owes",
        "lag",
        "unset",
        "stepped",
        "doubted",
        "behind",
        "ahead",
        "agent-down",
        "ill",
        "former",
    ]
)


class Fleet:
    """A hub's knowledge of its vehicles."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW_NS)
        self.continuity, self.vehicles = Continuity(), Vehicles()
        devices = {id_: Device(id_, "token", "key", 0) for id_ in KNOWN}
        self.sync = HubSync(self.clock, FutureRule(5.0), lambda: devices, conflicts_max=9)
        self.links = {id_: DeviceLink(up=True, agent=True) for id_ in [*KNOWN, "VID-REVOKED"]}
        self.lags: dict[tuple[str, str], int] = {}
        self.clocks: dict[str, ClockWord] = {}
        self.sight = FleetSight(
            *(self.clock, self.continuity),
            devices=lambda: devices,
            links=self.links,
            lags=self.lags,
            clocks=self.clocks,
            vehicles=self.vehicles,
            sync=self.sync,
        )

    def arrive(self, device: str, *seqs: int, epoch: int = 7) -> None:
        for seq in seqs:
            self.continuity.arrived(LaneKey(device, "bulk", epoch), seq, 9, NOW_NS + seq)

    def put(self, device: str, state: str) -> None:
        match state:
            case "down":
                self.links.pop(device, None)
            case "gap":
                self.arrive(device, 1, 3)
            case "owes":
                self.arrive(device, 1)
                self.continuity.say(LaneKey(device, "bulk", 7), 5)
            case "lag":
                self.arrive(device, 1)
                self.lags[device, "bulk"] = 3
            case "unset":
                self.clocks[device] = ClockWord(NOW_NS, "unset", 0, None, 1)
            case "stepped":
                self.clocks[device] = ClockWord(NOW_NS, "synced", 0, None, 1, step_ns=9 * S)
            case "doubted":
                evidence = Evidence("fork", NOW_NS, NOW_NS, None, None, "seq 7")
                self.vehicles.identities.restore({device: Identity((), evidence)})
            case "behind":
                self.sync.peer(device).in_sync = False
            case "ahead":
                self.sync.heads.take(device, Addressed("", Point("n", "t", NOW_NS + 99 * S, 1.0)))
            case "agent-down":
                self.links[device].agent = False
            case "ill":
                report = VehicleReport("aa", "bb", "cc", "1.0", conditions=(("disk-full", ""),))
                self.vehicles.told[device] = Told(report, NOW_NS)
            case "former":
                self.arrive(device, 1, 4, epoch=6)
                self.arrive(device, 9, 10)


def _conditions(fleet: Fleet, *, every: bool) -> list[Any]:
    health = HubHealth(Health(patience=0))
    for second in range(2):
        seen, counts = asyncio.run(fleet.sight.look())
        assert counts.devices == len(KNOWN)
        if every:
            seen = {id_: fleet.sight.facts(id_) for id_ in KNOWN}
            assert counts.up == sum(each.up for each in seen.values())
            assert counts.clock_unset == sum(each.clock_unset for each in seen.values())
            lanes = fleet.continuity.lanes.values()
            assert counts.arrivals == sum(each.messages + each.repeats for each in lanes)
        health.look(HealthFacts([], devices=seen), float(second), NOW_NS)
    return health.conditions.shown()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KNOWN), STATES), max_size=8), st.booleans())
def test_who_is_left_out_is_well(states: list[tuple[str, str]], taken: bool) -> None:
    fleet = Fleet()
    for id_ in KNOWN[:2]:
        fleet.arrive(id_, 1, 2, 2, 3)
    for device, state in states:
        if state == "down" or device in fleet.links:
            fleet.put(device, state)
    if taken:  # as the book of repairs does, now and then
        fleet.continuity.take_stirred()
    assert _conditions(fleet, every=False) == _conditions(fleet, every=True)


def test_of_a_fleet_that_is_well_nothing_is_gathered() -> None:
    for state in ("gap", "lag", "unset", "stepped", "doubted", "behind", "ahead", "ill"):
        fleet = Fleet()
        fleet.arrive(KNOWN[0], 1, 2, 3)
        assert asyncio.run(fleet.sight.look())[0] == {}
        fleet.put(KNOWN[1], state)
        assert list(asyncio.run(fleet.sight.look())[0]) == [KNOWN[1]], state
