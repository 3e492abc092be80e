"""What surrounds the vehicles of a run: the hub's answers, what both ends write, and what a link brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec import Point
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.continuity.lane_key import LaneKey
from tests.simulation.hub import DEVICE
from tests.simulation.invariants import SECOND_NS, START_NS, Invariants

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from backhaul_agent.uplink.epoch_sync import Ends, Known
    from tests.simulation.links import Links
    from tests.simulation.vehicle import Vehicle


LEAF_PINGS_S = 20.0
"""A leaf server takes a link over which nothing comes for dead after so long."""


SERIES = [HeadKey("", node, type_) for node in ("pump", "fan") for type_ in ("limit", "mode")]


class Surroundings(Invariants):
    """Vehicles and their hub, as they see one another over the link."""

    random: Random
    faulty: bool
    link_up: bool
    half_open: bool
    _hung_s: float

    @property
    def now_s(self) -> float:
        """Return the monotonic time."""
        return (self.now_ns - START_NS) / 1e9

    def known(self, vehicle: Vehicle, epoch: int) -> tuple[Known, Ends] | None:
        """Let the hub answer the machine at the link."""
        if not self._is_linked(vehicle):
            return None
        self.hub.hear(vehicle.machine, self.now_ns)
        return self.hub.known(epoch)

    def gave_up(self, vehicle: Vehicle, lane: str, epoch: int, low: int, high: int) -> None:
        """Check that no other machine that was ever heard has what a receipt gives up."""
        heard = {each.machine for each in self.hub.identities.of(DEVICE).seen}
        for machine in self.machines:
            if machine is vehicle or machine.machine not in heard:
                continue  # of one that nobody has heard nobody can know
            rows = machine.ledger.rows
            has = [seq for seq in range(low, high + 1) if (lane, epoch, seq) in rows]
            if has:
                self._fail(
                    f"a receipt explains away {lane} {epoch} {has}, which another machine has"
                )

    def reads(self, vehicle: Vehicle, lane: str) -> bool:
        """Tell whether the hub reads the durable of a machine's lane."""
        return vehicle is self.vehicle and self.links is not None and self.links.reads(lane)

    def hashes(
        self, vehicle: Vehicle, lane: str, epoch: int, low: int, high: int
    ) -> list[str | None] | None:
        """Let the hub answer the machine at the link."""
        if not self._is_linked(vehicle):
            return None
        return self.hub.hashes_of(lane, epoch, low, high)

    def _is_linked(self, vehicle: Vehicle) -> bool:
        return self.link_up and not self.half_open and vehicle is self.vehicle

    def _pass_time(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        for machine in self.machines:
            machine.now_ns = self.now_ns

    def _lose_up(self, lose: Callable[[], object]) -> None:
        """Have UP lose something; of what the history has, and the hub has not read, the hub cannot know."""
        for lane, epoch, seq in self.history.places:
            state = self.hub.continuity.lanes.get(LaneKey(DEVICE, lane, epoch))
            if state is None or seq not in state.seen:
                self._unread.add((lane, epoch, seq))
        lose()

    def _vehicle_writes(self, vehicle: Vehicle) -> None:
        key = self.random.choice(SERIES)
        known = vehicle.heads.get(key)
        time = max(self.now_ns + vehicle.clock_error_ns, known.time + 1 if known else 0)
        value = float(self.random.randint(0, 9))
        vehicle.write_head(Point(key.node, key.type, time, value, key.key))

    def _hub_writes(self) -> None:
        key = self.random.choice(SERIES)
        self.hub.write_head(key, float(self.random.randint(0, 9)), self.now_ns)

    def _clock_jumps(self, vehicle: Vehicle) -> None:
        # What is left of an error after the correction; years are corrected before they leave.
        vehicle.clock_error_ns = self.random.randint(-4, 4) * SECOND_NS

    def _hand_over(self, links: Links) -> None:
        """Have agents and hub see the link, and agree on who brings the lanes."""
        for machine in self.machines:
            if not (self.faulty and self.random.random() < 0.1):
                up = self.link_up and machine is self.vehicle
                hung = self.half_open and self.now_s - self._hung_s > LEAF_PINGS_S
                assert machine.pushing is not None
                machine.pushing.uplink.note(up and not hung)
        for lane in links.keep():
            self._check_handed_over(lane)
        pushing = self.vehicle.pushing
        assert pushing is not None
        if links.sound and (question := pushing.question(self.now_s)) is not None:
            if self.faulty and self.random.random() < 0.1:
                return  # it is lost
            answer = links.answer(question)
            if twice := [lane for lane in answer if links.wants(lane)]:
                self._fail(f"the hub says that it sources {twice} not, and does")
            self.counts.slept += len(answer)
            if not (self.faulty and self.random.random() < 0.1):
                pushing.answers.append((question.number, answer))

    def _push(self, links: Links) -> None:
        for message in links.carry(
            self.vehicle.under_way, self.random.randint(0, 6) if self.faulty else 64
        ):
            self.hub.up.store(message, self.now_ns)

    def _source(self, name: str, messages_max: int) -> None:
        """Bring messages of a lane over the link; those the source takes for old are dropped."""
        out, source = self.vehicle.out(name), self.hub.sources[name]
        if out.created != source.created:
            source.reset(out, self.random, faulty=self.faulty)
        for seq in sorted(seq for seq in out.messages if seq > out.floor)[:messages_max]:
            if seq > source.seq:
                source.seq = seq
                self.hub.up.store(out.messages[seq].message, self.now_ns)
            if self.faulty and self.random.random() < 0.02:
                return  # the acknowledgement is lost: it comes again, and is dropped
            out.floor = seq

    def _lag(self, name: str) -> int:
        out, source = self.vehicle.out(name), self.hub.sources[name]
        return sum(1 for seq in out.messages if seq > max(out.floor, source.seq))
