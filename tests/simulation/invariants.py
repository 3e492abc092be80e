"""What must hold of a vehicle and its hub, all along a run and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_hub.continuity.lane_key import LaneKey
from tests.simulation.hub import DEVICE

if TYPE_CHECKING:
    from tests.simulation.hub import History, Hub
    from tests.simulation.links import Links
    from tests.simulation.models import Message
    from tests.simulation.vehicle import Vehicle

SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS // HOUR_NS * HOUR_NS


class ViolationError(Exception):
    """An invariant does not hold; the message names it, ``schedule`` what was done."""

    def __init__(self, seed: int, what: str, schedule: list[str]) -> None:
        tail = "\n  ".join(schedule)
        super().__init__(
            f"seed {seed}: {what}\n  {tail}\nreplay: BACKHAUL_SIM_SEEDS={seed} "
            "pytest tests/simulation/test_simulation.py"
        )
        self.what = what


@dataclass
class Counts:
    """What a run did."""

    points: int = 0
    faults: int = 0
    explained: int = 0
    uncertain: int = 0
    epochs: int = 0
    clones: int = 0
    moved: int = 0
    slept: int = 0
    repeats: int = 0
    seen: dict[str, int] = field(default_factory=dict)


class Invariants:
    """Judges a run, which sets and changes all of this (`run.Run`)."""

    seed: int
    now_ns: int
    schedule: list[str]
    counts: Counts
    hub: Hub
    history: History
    vehicle: Vehicle
    """The machine at the link."""
    machines: list[Vehicle]
    links: Links | None
    """Where lanes are pushed; else each link that comes has all lanes sourced anew."""
    _unread: set[tuple[str, int, int]]
    """Places whose messages UP had lost before the hub read them, and the history has."""

    def _is_sourced_still(self) -> bool:
        """Tell whether the lane that trickles is sourced though it was not woken lately."""
        assert self.vehicle.pushing is not None
        lane = self.vehicle.pushing.pusher.policy._lanes["bulk"]
        return not lane.asleep and self.now_ns / 1e9 > lane.not_before_s + 20

    def _check_handed_over(self, lane: str) -> None:
        """The source of a lane goes once all of the epoch has come that was not pushed."""
        if self.links is not None and not self.links.pushes_were_heard:
            self._fail(f"the source of {lane} goes, and nobody takes its pushes")
        if self.hub.up.loss:
            return  # what was there when the hub looked may be lost since
        pushing = self.vehicle.pushing
        if pushing is None or lane not in pushing.pusher.policy.word:
            return  # it was asked for by a former run of the agent: the next question has it sourced again
        out, safe = self.vehicle.out(lane), self._safe()
        for seq, (message, _) in out.messages.items():
            pushed = message.own in self.vehicle.book.pushed
            former = message.epoch != self.vehicle.ledger.epoch
            if not (pushed or former or seq <= out.floor or message.place in safe):
                self._fail(f"the source of {lane} goes, and {message.place} was not pushed")

    def _check_always(self) -> None:
        """The watermark never passes a hole, and no hour is called complete over one."""
        safe = self._safe()
        if self.hub._read_loss != self.hub.up.loss:
            return  # the hub has not looked since
        for key, state in self.hub.continuity.lanes.items():
            for seq in range(1, state.watermark + 1):
                place = (key.lane, key.epoch, seq)
                if place not in safe and seq not in state.explained:
                    self._fail(f"the watermark {state.watermark} of {key} passes the hole {seq}")
        # Judged by hours in which what is acknowledged has a place that is known.
        hours = range(START_NS, self.now_ns + HOUR_NS, HOUR_NS)
        for report in self.hub.reports(hours):
            if report.state != "complete":
                continue
            for id_, message in self.vehicle.book.acknowledged.items():
                hour_ns = message.time_ns // HOUR_NS * HOUR_NS
                if hour_ns != report.hour_ns or safe.get(message.place) == message.own:
                    continue
                if message.place in safe:
                    continue  # another machine's: this one has not been heard to its end
                # Of a machine that the hub has not heard of nobody can know what it keeps.
                secret = id_ in self.vehicle.book.uncertain or len(self.machines) > 1
                if not (secret and self._unheard_of(message)):
                    self._fail(f"an hour is complete without point {id_} at {message.place}")

    def _safe(self) -> dict[tuple[str, int, int], bytes]:
        found: dict[tuple[str, int, int], bytes] = {}
        for _, _, message in self.hub.up.messages:
            found.setdefault(message.place, message.own)
        return found | {place: message.own for place, message in self.history.places.items()}

    def _check_end(self) -> None:
        vehicle, history = self.vehicle, self.history
        for id_, times in history.points.items():
            if times != 1:
                self._fail(f"point {id_} stands {times} times in the history")
        for id_, message in vehicle.book.acknowledged.items():
            self.counts.points += 1
            if id_ in history.points:
                continue
            self._check_named(id_, message)
        for machine in self.machines:
            if machine.heads.root() != self.hub.heads.root():
                mine, theirs = dict(machine.heads), dict(self.hub.heads)
                self._fail(f"heads differ: vehicle {mine}, hub {theirs}")
            owed = [lane for lane in machine.ledger.closed.values() if not lane.whole]
            if owed:
                self._fail(f"the hub holds everything, and the vehicle has not heard of {owed}")
        if len(self.machines) == 1:
            self._check_current()
        self.counts.moved = len(vehicle.book.moved)
        self.counts.epochs = len({message.epoch for message in vehicle.book.acknowledged.values()})

    def _check_current(self) -> None:
        """The hub takes no former epoch for the one that the vehicle writes in."""
        ledger, current = self.vehicle.ledger, self.hub.continuity.current(DEVICE)
        for name, lane in ledger.lanes.items():
            at_hub = current[name][0] if name in current else None
            if lane.last_seq and at_hub != ledger.epoch:
                self._fail(
                    f"the hub takes epoch {at_hub} of {name} for the current one, not {lane}"
                )

    def _check_named(self, id_: int, message: Message) -> None:
        """A point that did not arrive: was it given up, and does the hub know?"""
        place = message.place
        state = self.hub.continuity.lanes.get(LaneKey(DEVICE, message.lane, message.epoch))
        uncertain = id_ in self.vehicle.book.uncertain
        if state is not None and message.seq in state.explained:
            if not uncertain and message.own not in self.vehicle.book.forgotten:
                self._fail(f"point {id_} at {place} was given up though it was kept")
            self.counts.explained += 1
        elif place in self._unread:
            self.counts.uncertain += 1  # a disk that was put back gave the place to another
        elif uncertain and (self._unheard_of(message) or place in self.history.places):
            # Nobody is left who could know of it; or its ledger was put back by an older copy,
            # which gave its place to another.
            self.counts.uncertain += 1
        else:
            self._fail(f"point {id_} at {place} is lost in silence")

    def _unheard_of(self, message: Message) -> bool:
        """Whether the hub never heard of a place, nor of one behind it."""
        state = self.hub.continuity.lanes.get(LaneKey(DEVICE, message.lane, message.epoch))
        known = state and max(state.seen.highest, state.explained.highest, state.said)
        return not known or message.seq > known

    def _fail(self, what: str) -> None:
        raise ViolationError(self.seed, what, self.schedule)
