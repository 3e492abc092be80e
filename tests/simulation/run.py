"""One run: a schedule drawn from a seed, then a quiet end, and what must hold all along.

Replay one with ``BACKHAUL_SIM_SEEDS=17 pytest tests/simulation/test_simulation.py``.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.hub import DEVICE, History, Hub, HubCores
from tests.simulation.invariants import START_NS, Counts
from tests.simulation.lane_parts import LANES, Cores
from tests.simulation.links import Links
from tests.simulation.surroundings import Surroundings
from tests.simulation.vehicle import Vehicle

if TYPE_CHECKING:
    from collections.abc import Callable


STEPS = 120
PAUSES_S = (0.05, 0.3, 1.0, 3.0, 20.0)
PAUSES_PUSHED_S = (0.05, 0.3, 1.0, 1.0, 1.0, 2.0, 3.0, 20.0)
TRICKLE_STEPS = 50
LATE_S = 3.0
"""From a message's publication until it is at the hub, at the latest; also while its lane is handed over."""
LOST_S = 18.0
"""So much later comes one whose push was lost: the vehicle gives the hub 15 s to confirm it."""
REPEATS_MAX = 20
"""With a link that flaps: what was pushed since the last watermark, and the first words over each new link."""
QUIET_STEPS = 1500
MACHINES_MAX = 3
ROUNDS_MAX = 8
ASK_PAUSE_S = 60.0
"""Between two questions of a vehicle about former epochs, once its first ones had no news."""


class Run(Surroundings):
    """A vehicle and its hub, stepped by a seed."""

    def __init__(
        self,
        seed: int,
        *,
        cores: Cores | None = None,
        hub_cores: HubCores | None = None,
        vehicle: type[Vehicle] = Vehicle,
        pushes: bool | None = None,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_ns = START_NS
        self.hub = Hub(hub_cores or HubCores())
        self.history = History()
        self.link_up = False
        self.half_open = False
        self._ask_at_s = 0.0
        self.faulty = True
        self.schedule = []
        self.counts = Counts()
        pushes = seed % 2 == 1 if pushes is None else pushes
        self.vehicle = vehicle(self.random, cores or Cores(), self.now_ns, self, pushes=pushes)
        self.machines = [self.vehicle]
        self.links = None
        self._hung_s = 0.0
        self._unread = set()
        if pushes:
            self.hub.knows_requests = True
            self.links = Links(
                self.hub, self.random, lambda: self.now_ns, lambda lane: self.vehicle.out(lane)
            )
            self._link_comes()

    def go(self) -> Counts:
        """Run the schedule and the quiet end; raise at the first violation."""
        for _ in range(STEPS):
            self._pass_time(self.random.choice(PAUSES_S if self.links is None else PAUSES_PUSHED_S))
            self._act()
            self._everybody_works()
            self._check_always()
        self._heal()
        # A link that stands may stay: what was lost on it must be noticed.
        stays = self.links is not None and self.links.sound and len(self.machines) == 1
        for turn in range(ROUNDS_MAX):
            said = self.hub.up.last_seq
            for machine in self.machines:
                if turn or not stays:
                    self._takes_turn(machine)
                self._come_to_rest()
            if len(self.machines) == 1 or self.hub.up.last_seq == said:
                break
        if self.hub.identities.answerer(DEVICE) == "":
            # Each has had its turn, and holds nothing back: an operator says that one is left.
            self.hub.settle(self.now_ns)
            self._come_to_rest()
        if self.links is not None and len(self.machines) == 1:
            self._trickle(self.links)
            self._come_to_rest()
        self._check_end()
        return self.counts

    def _come_to_rest(self) -> None:
        for step in range(QUIET_STEPS):
            self._pass_time(1.0 if step < 300 else 5.0)
            self._everybody_works()
            if step % 10 == 9:
                self._check_always()
                if self._quiet():
                    break
        self._meet()
        if not self._quiet():
            lanes = self.hub.continuity.lanes.items()
            missing = {(*key[1:], *state.owed) for key, state in lanes if not state.whole}
            owed = [lane for lane in self.vehicle.ledger.every_lane() if not lane.whole]
            doubts = {n: each.confirmations.disputed for n, each in self.vehicle.lanes.items()}
            self._fail(f"it never came to rest: hub lacks {missing}, vehicle owes {owed}, {doubts}")

    def leaf_gone(self, vehicle: Vehicle) -> None:
        """Have the link of a leaf server go with it, and come with it or later."""
        if self.links is not None and vehicle is self.vehicle and self.link_up:
            self._link_goes()
            if self.random.random() < 0.7:
                self._link_comes()

    def _clone(self) -> None:
        if len(self.machines) == MACHINES_MAX or self.hub.up.loss:
            return
        clone = self.random.choice(self.machines).clone()
        self.machines.append(clone)
        self.counts.clones += 1
        if self.random.random() < 0.3:
            clone.restart()  # without the hub's word it opens an epoch of its own
            return
        self._link_goes()
        self.vehicle, self.link_up, self.half_open = clone, True, False
        self.hub.read(1000)
        clone.restart()
        self.link_up = False
        self._link_comes()

    def _kill_control_plane(self) -> None:
        self.hub.restart()
        if self.links is not None:
            self.links.begin()

    def _flap(self) -> None:
        """Have the link go and come between two looks of the agent's."""
        if self.link_up:
            self._link_goes()
            self._link_comes()

    def _kill_server(self) -> None:
        """Kill the hub's server, and start it."""
        assert self.links is not None
        self.links.restart_server()
        if self.link_up:
            self._link_goes()
            if self.random.random() < 0.5:
                self._link_comes()

    def _lose_registry(self) -> None:
        """Rebuild hub.db from the streams; the control plane begins as a vehicle comes back to it."""
        self._link_goes()
        self.hub.begin_anew()
        if self.links is not None:
            self.links.begin()
        self._link_comes()

    def _turns(self) -> None:
        self._takes_turn(self.random.choice(self.machines))

    def _takes_turn(self, machine: Vehicle) -> None:
        """Put a machine in the place of the one at the link."""
        self._link_goes()
        self.vehicle = machine
        self._link_comes()

    def _act(self) -> None:
        """Do one thing: mostly what a vehicle does all day, now and then a fault."""
        random, vehicle = self.random, self.random.choice(self.machines)
        ordinary: list[tuple[str, Callable[[], object]]] = [
            ("publish bulk", lambda: vehicle.publish("bulk", random.randint(1, 3))),
            ("publish live", lambda: vehicle.publish("live", 1)),
            ("vehicle writes a head", lambda: self._vehicle_writes(vehicle)),
            ("hub writes a head", self._hub_writes),
            ("mark", lambda: vehicle.mark("hour")),
            ("leaf syncs", vehicle.sync_leaf),
        ]
        faults: list[tuple[str, Callable[[], object]]] = [
            ("link up", self._link_comes),
            ("link up", self._link_comes),
            ("link cut", self._link_goes),
            ("link half-open", self._link_hangs),
            ("agent killed", vehicle.restart),
            ("leaf killed", vehicle.restart_leaf),
            ("leaf loses power", lambda: vehicle.restart_leaf(power_cut=True)),
            ("vehicle loses power", vehicle.lose_power),
            ("leaf wiped", vehicle.wipe_leaf),
            ("control plane killed", self._kill_control_plane),
            ("ledger copied", vehicle.copy_ledger),
            ("ledger forgets", vehicle.forget),
            ("clock jumps", lambda: self._clock_jumps(vehicle)),
            ("leaf trims", vehicle.trim_leaf),
            ("machines take turns", self._turns),
            ("an hour passes", lambda: self._pass_time(1800)),
        ]
        rare: list[tuple[str, Callable[[], object]]] = [
            ("UP rolled back", lambda: self._lose_up(lambda: self.hub.up.roll_back(random))),
            ("UP purged", lambda: self._lose_up(lambda: self.hub.up.purge(random))),
            ("UP recreated", lambda: self._lose_up(self.hub.up.recreate)),
            ("ledger put back", vehicle.put_copy_back),
            ("whole disk put back", lambda: vehicle.put_copy_back(whole_disk=True)),
            ("ledger deleted", vehicle.delete_ledger),
            ("vehicle cloned", self._clone),
            ("vehicle cloned", self._clone),
            ("hub.db lost", self._lose_registry),
        ]
        if self.links is not None:
            faults += [
                ("link flaps", self._flap),
                ("PUSH wiped", self.links.push.wipe),
                ("hub server killed", self._kill_server),
                ("control plane killed", self._kill_control_plane),
            ]
        if len(self.machines) > 1:
            # What UP has lost of one machine, and the history has, another's message would replace.
            rare = [each for each in rare if not each[0].startswith("UP ")]
        chance = random.random()
        actions = ordinary if chance < 0.75 else faults if chance < 0.97 else rare
        name, action = random.choice(actions)
        if actions is not ordinary:
            self.schedule.append(f"{self.now_s:9.2f} s  {name}")
            self.counts.faults += 1
            self.counts.seen[name] = self.counts.seen.get(name, 0) + 1
        action()

    def _link_comes(self) -> None:
        if self.link_up and not self.half_open:
            return
        self.link_up, self.half_open = True, False
        self._ask_at_s = self.now_s
        self.vehicle.words.link_up()
        self.hub.hear(self.vehicle.machine, self.now_ns)
        self.hub.up_since_s = self.now_s
        if self.links is not None:
            self.links.comes()
        else:
            for name in LANES:
                source, out = self.hub.sources[name], self.vehicle.out(name)
                source.reset(out, self.random, faulty=self.faulty)
        self._meet()

    def _link_goes(self) -> None:
        self.link_up = self.half_open = False
        self.hub.up_since_s = None
        if self.links is not None:
            self.links.goes()
            self.vehicle.under_way.clear()

    def _link_hangs(self) -> None:
        self.half_open = self.link_up
        self._hung_s = self.now_s
        if self.links is not None:
            self.links.half_open = self.half_open

    def _everybody_works(self) -> None:
        for machine in self.machines:
            machine.work(self.random.randint(1, 12) if self.faulty else 64, self.now_s)
        pushes_first = self.links is not None and self.random.random() < 0.5
        if self.links is not None:
            self._hand_over(self.links)
            if pushes_first:
                self._push(self.links)
        if self.link_up and not self.half_open:
            lanes = [name for name in LANES if self.links is None or self.links.reads(name)]
            self.random.shuffle(lanes)
            for name in lanes:
                self._source(name, self.random.randint(0, 6) if self.faulty else 64)
            for seq, subject, body in self.hub.down.after(self.vehicle.ledger.in_seq):
                self.vehicle.take(seq, subject, body)
            if self.now_s >= self._ask_at_s and self.vehicle.hear_hub():
                self._ask_at_s = self.now_s + ASK_PAUSE_S
        if self.links is not None and not pushes_first:
            self._push(self.links)
        if not self.faulty or self.random.random() < 0.7:
            self.hub.read(self.random.randint(1, 20) if self.faulty else 1000)
            lags = (
                {name: self._lag(name) for name in LANES}
                if self.links is None
                else self.links.lags()
            )
            self.hub.tell(lags if self.link_up else {}, self.now_s)
        if not self.faulty or self.random.random() < 0.3:
            self.history.ingest(self.hub.up, self.random.randint(1, 30) if self.faulty else 1000)

    def _trickle(self, links: Links) -> None:
        """Publish at ease over a sound link: nothing waits though lanes are handed over, and little comes twice."""
        up, half = self.hub.up, TRICKLE_STEPS // 2
        events = ("control plane killed", "link flaps", "pushes lost", "epoch over")
        event, stored = self.random.choice(events), len(up.messages)
        late_s = LATE_S + LOST_S * (event == "pushes lost")
        self.schedule.append(f"{self.now_s:9.2f} s  it trickles; {event}")
        waiting: dict[tuple[str, int, int], float] = {}
        new: list[tuple[str, int, int]] = []
        # By the lane `live` the hub knows which epoch is the current one, and so from which it lets lanes be pushed.
        self.vehicle.mark("link")
        for step in range(TRICKLE_STEPS):
            self._pass_time(1.0)
            # What is lost is the last: else the next message would show that it is missing.
            links.loses = event == "pushes lost" and step >= half
            if not links.loses or step < half + 3:
                self.vehicle.publish("bulk", 1)
                lane = self.vehicle.ledger.lanes["bulk"]
                waiting[lane.name, lane.epoch, lane.last_seq] = self.now_s
            if step == half and self._is_sourced_still():
                self._fail("bulk is sourced though it trickles")
            if step == half and event == "control plane killed":
                self._kill_control_plane()
            elif step == half and event == "link flaps":
                self._flap()
            elif step == half and event == "epoch over":
                self.vehicle.epochs.behind("somebody says so")
            self._everybody_works()
            new = [each.message.place for each in up.messages[stored:]]
            for place in new:
                waiting.pop(place, None)
            for place, since_s in waiting.items():
                if self.now_s - since_s > late_s:
                    self._fail(f"{place} is not at the hub after {late_s} s")
        links.loses = False
        self.counts.repeats = max(self.counts.repeats, repeats := len(new) - len(set(new)))
        if event != "pushes lost" and repeats > REPEATS_MAX:
            self._fail(f"{repeats} messages came twice")

    def _heal(self) -> None:
        self.schedule.append(f"{self.now_s:9.2f} s  everything heals")
        self.faulty = False
        if self.links is not None:
            self.links.faulty = False
        for machine in self.machines:
            machine.faulty, machine.clock_error_ns = False, 0
            machine.mark("link")

    def _quiet(self) -> bool:
        lanes = self.vehicle.lanes.values()
        return (
            all(lane.appender.done and not lane.resends.pending for lane in lanes)
            and all(lane.whole for lane in self.vehicle.ledger.every_lane())
            and not any(lane.confirmations.disputed for lane in lanes)
            and not self.vehicle.under_way
            and all(self._lag(name) == 0 for name in LANES)
            and (
                self.hub.identities.answerer(DEVICE) == ""  # what is missing another may have
                or all(state.whole for state in self.hub.continuity.lanes.values())
            )
            and not self.hub.down.after(self.vehicle.ledger.in_seq)
        )

    def _meet(self) -> None:
        """Compare heads as a link that comes up does, and bring over what differs."""
        vehicle, hub = self.vehicle, self.hub
        if vehicle.heads.root() == hub.heads.root():
            return
        for key, head in list(vehicle.heads):
            if hub.heads.get(key) != head:
                vehicle.commit("live", "head", head.to_point(key))
        for key, head in list(hub.heads):
            if vehicle.heads.get(key) != head:
                hub.send_head(key)
        if not self.faulty:
            for _ in range(20):
                self._pass_time(1.0)
                self._everybody_works()
