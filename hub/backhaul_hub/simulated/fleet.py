"""A simulated fleet: its vehicles' messages, and their order. Pure.

Vehicle 0, 1, 2, ... send one message each, evenly over a round, and then again: message `number` of the
whole fleet is due `number / messages_s` seconds after the beginning. Nodes take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import Any

from backhaul_hub.simulated.faults import plant
from backhaul_hub.simulated.lanes import Lanes, Sourced
from backhaul_hub.simulated.vehicle import Vehicle

_SECOND_NS = 1_000_000_000
# Which node's turn it is: the battery is read every other time.
TURNS = ("battery", "cpu", "battery", "motor", "battery", "cabin")
# As many passes wait for one another while there is no link, about.
BACKLOG_PASSES = 100


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The plan of a fleet.

    Args:
        devices: how many vehicles.
        rate_min: messages of each in a minute.
        passes: in a frame.
        seed: of everything.
        start_ns: from when on it sends, since the Unix epoch; its whole second is the ledgers' epoch.
        seconds: for how long.
        faults: how many vehicles have what (faults.py).
        late_devices: so many vehicles have no link for some time, and then send it all.
        late_s: how long they have been away at `start_ns`.
        bundles: write telemetry in bundles, each of the node whose turn it is; else in frames.
    """

    devices: int
    rate_min: float
    passes: int
    seed: int
    start_ns: int
    seconds: int
    faults: Mapping[str, int] = field(default_factory=dict)
    late_devices: int = 0
    late_s: int = 0
    bundles: bool = False

    @property
    def messages_s(self) -> float:
        """How many messages the whole fleet sends in a second."""
        return self.devices * self.rate_min / 60

    @property
    def from_ns(self) -> int:
        """When the first reading of all is stamped."""
        return self.start_ns - (self.late_s * _SECOND_NS if self.late_devices else 0)

    def step_ns(self, node: str) -> int:
        """Return the time between two passes of a node."""
        round_ns = round(60 * _SECOND_NS / self.rate_min)
        return round_ns * len(TURNS) // TURNS.count(node) // self.passes


class SimulatedVehicles:
    """All vehicles of a plan. The first ones are those that are away at the start."""

    def __init__(self, plan: FleetPlan) -> None:
        self.plan = plan
        to_ns = plan.start_ns + plan.seconds * _SECOND_NS
        self.faults = plant(plan.faults, plan.devices, plan.seed, plan.from_ns, to_ns)
        epoch = plan.start_ns // _SECOND_NS & 0xFFFFFFFF
        self._lanes = [
            Lanes(
                Vehicle(device_id(number), plan.seed, self.faults.get(number)),
                epoch,
                bundles=plan.bundles,
            )
            for number in range(plan.devices)
        ]
        # Messages of theirs that were due meanwhile.
        self._away: dict[int, deque[int]] = {number: deque() for number in range(plan.late_devices)}
        self._live_ns = plan.start_ns
        self._step_ns = {node: plan.step_ns(node) for node in TURNS}

    def truth(self) -> dict[str, Any]:
        """Return the fault of each vehicle that has one, ready for JSON."""
        return {
            "seed": self.plan.seed,
            "devices": self.plan.devices,
            "from_ns": self.plan.from_ns,
            "late": [device_id(number) for number in range(self.plan.late_devices)],
            "faults": {
                device_id(number): fault.as_json() for number, fault in sorted(self.faults.items())
            },
        }

    def introductions(self) -> Iterator[Sourced]:
        """Yield all vehicles' words on themselves: those with a link at the start."""
        for lanes in self._lanes[self.plan.late_devices :]:
            yield from lanes.introduction(self.plan.start_ns)

    def go_live(self, now_ns: int) -> None:
        """Have message 0 be due at `now_ns`: all before it took its time."""
        self._live_ns = now_ns

    def live(self, low: int, high: int) -> Iterator[Sourced]:
        """Yield messages `low` to `high`, the last not included."""
        for number in range(low, high):
            vehicle = number % self.plan.devices
            if (waiting := self._away.get(vehicle)) is not None:
                waiting.append(number)
            else:
                yield from self._message(number)

    def backlog(self, until_ns: int) -> Iterator[Sourced]:
        """Yield the backlog up to `until_ns`, when the link comes back to all vehicles that are away.

        In turns, each vehicle's in order. What it reads meanwhile follows; then it is live.
        """
        sending = deque(
            self._piled_up(number, until_ns) for number in range(self.plan.late_devices)
        )
        while sending:
            message = next(sending[0], None)
            if message is None:
                sending.popleft()
            else:
                yield message
                sending.rotate(-1)

    def _message(self, number: int) -> list[Sourced]:
        vehicle = number % self.plan.devices
        lanes = self._lanes[vehicle]
        if _is_silent(lanes):
            return []
        node = TURNS[(number // self.plan.devices + vehicle) % len(TURNS)]
        return lanes.frame(node, self._due_ns(number), self._step_ns[node], self.plan.passes)

    def _due_ns(self, number: int) -> int:
        return self._live_ns + int(number / self.plan.messages_s * _SECOND_NS)

    def _piled_up(self, vehicle: int, until_ns: int) -> Iterator[Sourced]:
        lanes = self._lanes[vehicle]
        yield from lanes.introduction(self.plan.from_ns)
        if not _is_silent(lanes):
            nodes = dict.fromkeys(TURNS)
            for last_ns, node, step_ns, passes in merge(
                *(self._long_frames(node, until_ns) for node in nodes)
            ):
                yield from lanes.frame(node, last_ns, step_ns, passes)
        yield lanes.link_up(until_ns)
        # Rounds go on while these are sent.
        waiting = self._away[vehicle]
        while waiting:
            number = waiting.popleft()
            if self._due_ns(number) > until_ns:
                yield from self._message(number)
        del self._away[vehicle]

    def _long_frames(self, node: str, until_ns: int) -> Iterator[tuple[int, str, int, int]]:
        """Yield when frames of a node end that could grow long: time, node, step, passes."""
        step_ns = self._step_ns[node]
        passes = (until_ns - self.plan.from_ns) // step_ns
        for done in range(0, passes, BACKLOG_PASSES):
            count = min(BACKLOG_PASSES, passes - done)
            yield self.plan.from_ns + (done + count) * step_ns, node, step_ns, count


def device_id(number: int) -> str:
    """Return the id of a vehicle."""
    return f"SIM-{number:06d}"


def _is_silent(lanes: Lanes) -> bool:
    fault = lanes.vehicle.fault
    return fault is not None and fault.kind == "silent"
