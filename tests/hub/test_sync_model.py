"""The heads of both ends over a link that loses, doubles and delays, whatever is written where."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backhaul_codec import Point, decode
from backhaul_codec.subjects import parse_leaf
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_hub.sync.heads import is_hub_origin
from backhaul_hub.sync.writes import Put
from tests.hub.both_ends import LIMIT, Ends, Written, written
from tests.support.hub_sync import DEVICE


class BothEnds(RuleBasedStateMachine):
    """Random writes, transfers and crashes against an account of who knew what when writing.

    The account knows nothing of stamps that were seen or heard: it remembers for each write which
    writes of the other end had arrived, and a conflict is two writes, neither of which knew of the
    other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends = Ends()
        self.value = 0.0
        self.at_the_vehicle: set[Written] = set()
        self.at_the_hub: set[Written] = set()
        self.knew: dict[Written, set[Written]] = {}
        self.expected = 0

    def _next_value(self) -> float:
        self.value += 1.0
        return self.value

    @rule(type_=st.sampled_from(["limit", "floor"]))
    def vehicle_writes(self, type_: str) -> None:
        point = self.ends.vehicle.put("battery", type_, self._next_value())
        self.knew[written(point)] = set(self.at_the_vehicle)

    @rule(types=st.sets(st.sampled_from(["limit", "floor"]), min_size=1))
    def hub_writes(self, types: set[str]) -> None:
        puts = [Put(LIMIT._replace(type=type_), self._next_value()) for type_ in sorted(types)]
        for point in self.ends.hub.set(*puts):
            self.knew[written(point)] = set(self.at_the_hub)

    @rule(count=st.integers(1, 4))
    def up(self, count: int) -> None:
        for _ in range(min(count, len(self.ends.vehicle.up))):
            subject, _, body = self.ends.vehicle.up[0]
            if subject.startswith("p."):
                self._arrives(subject.split(".")[2], decode(body).points[0])
            self.ends.link.up(1)

    def _arrives(self, type_: str, point: Point) -> None:
        mine = (type_, point.time, point.origin)
        head = self.ends.heads.get(LIMIT._replace(type=type_))
        if is_hub_origin(point.origin) or mine in self.at_the_hub:
            return
        self.at_the_hub.add(mine)
        if head is None or not is_hub_origin(head.origin):
            return
        other = (type_, head.time, head.origin)
        self.expected += other not in self.knew[mine] and mine not in self.knew[other]

    @rule(count=st.integers(1, 3))
    def down(self, count: int) -> None:
        taken = self.ends.vehicle.take

        def take(subject: str, body: bytes) -> None:
            if subject.startswith("p."):
                _, addressed = decode_addressed(parse_leaf(subject), body)
                self.at_the_vehicle |= {written(point) for _, point in addressed}
            taken(subject, body)

        with patch.object(self.ends.vehicle, "take", take):
            self.ends.link.down(count)

    @rule()
    def tick(self) -> None:
        self.ends.tick()

    @rule()
    def crash(self) -> None:
        self.ends.hub.crash()

    @rule()
    def link_comes_up(self) -> None:
        self.ends.vehicle.digest()

    @rule()
    def vehicle_sends_its_heads_again(self) -> None:
        for key, _ in self.ends.vehicle.heads:
            self.ends.vehicle.send_head(key)

    @invariant()
    def conflicts_are_noticed(self) -> None:
        assert len(self.ends.hub.core.conflicts.of()) == self.expected

    def teardown(self) -> None:
        self.ends.link.settle()
        assert self.ends.vehicle.heads.root() == self.ends.heads.root()
        assert self.ends.hub.core.peer(DEVICE).in_sync is True
        self.ends.hub.db.close()


BothEnds.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBothEnds = BothEnds.TestCase
