"""Two ends that differ in any way come to the same heads, say so, and then are silent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_agent.ledger.sequence_offsets import SequenceOffsets
from backhaul_agent.sync.digests import ROUNDS_MAX, SETTLE_S, Digests, messages_of
from backhaul_codec import Opaque, Point, decode
from backhaul_codec.state.merge import Head, HeadKey, Heads
from backhaul_codec.subjects import parse_leaf
from backhaul_codec.wire.addressed import Addressed, decode_addressed
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_agent.ledger.rows import Outgoing

NOON = 1_700_000_000_000_000_000


class Ends:
    """A vehicle and a hub, messages between them delivered at once and in order."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON)
        self.keeper = HeadKeeper("VID-001", self.clock.now_ns)
        self.settled = True
        self.digests = Digests(self.keeper, self.clock, settled=lambda: self.settled)
        self.hub = Heads()
        self.refused: set[HeadKey] = set()  # what the hub will not take
        self.told = 0
        self.sent = 0

    def write(self, *points: Point, parent: str = "") -> None:
        """Change heads on the vehicle; the messages are on their way to the hub."""
        changes = self.keeper.begin()
        changes.write(Addressed(parent, point) for point in points)
        self.digests.changed(changes.apply())

    def receive(self, inward: Inward) -> None:
        changes = self.keeper.begin()
        changes.receive(inward)
        self.digests.changed(changes.apply())

    def run(self, rounds: int = 10) -> None:
        """Let time pass until nothing is due any more; fail where that never comes."""
        for _ in range(rounds):
            if self.digests.due_s is None:
                return
            self.clock.advance(max(0.0, self.digests.due_s - self.clock.monotonic_s()))
            self.tell()
        pytest.fail("they never come to an end")

    def tell(self) -> None:
        body = body_of(self.digests.root())
        self.told += 1
        if body["root"] != self.hub.root():
            self.hear_of(self.hub.digests())

    def hear_of(
        self, digests: dict[str, str], *, fresh: bool = True, durable: bool = True
    ) -> list[Outgoing]:
        changes = Inward()
        data = json.dumps({"nodes": digests}).encode()
        self.digests.on_message(Inbound(["s", "digest"], data, fresh), changes)
        if not durable:
            return changes.messages
        for tell in changes.on_durable:
            tell()
        wanted: list[str] = []
        for message in changes.messages:
            if message.subject == "e.digest":
                wanted = body_of(message)["want"]
                continue
            self.sent += 1
            _, addressed = decode_addressed(parse_leaf(message.subject), message.body)
            for each in addressed:
                if HeadKey.of(*each) not in self.refused:
                    self.hub.offer(*each)
        for node in wanted:
            heads = self.hub.of_node(node).items()
            self.receive(Inward(received=[Addressed(k.parent, h.to_point(k)) for k, h in heads]))
        return changes.messages


def body_of(message: Outgoing) -> dict[str, Any]:
    (point,) = decode(message.body).points
    assert isinstance(point.value, Opaque)
    body: dict[str, Any] = json.loads(point.value.data)
    return body


def point(node: str = "gps", type_: str = "rate", time: int = NOON, origin: str = "") -> Point:
    return Point(node, type_, time, 1.0, origin=origin)


names = st.sampled_from("ab")
addressed = st.builds(
    Addressed,
    st.sampled_from(["", "a"]),
    st.builds(
        Point, names, names, st.integers(0, 3), st.floats(), tombstone=st.integers(0, 3),
        origin=st.sampled_from(["", "hub"]),
    ),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(addressed), st.lists(addressed))
@settings(max_examples=200)
def test_whatever_the_two_hold_they_come_to_the_same(
    mine: list[Addressed], theirs: list[Addressed]
) -> None:
    ends = Ends()
    ends.receive(Inward(received=mine))
    for each in theirs:
        ends.hub.offer(*each)
    ends.digests.link_up()
    ends.run()
    assert dict(ends.keeper.heads) == dict(ends.hub)
    assert ends.keeper.heads.root() == ends.hub.root()


def test_equal_ends_say_it_once_and_send_nothing() -> None:
    ends = Ends()
    ends.digests.link_up()
    ends.run()
    assert (ends.told, ends.sent) == (1, 0)


def test_only_nodes_that_differ_are_sent() -> None:
    ends = Ends()
    ends.receive(Inward(received=[Addressed("", point(node)) for node in ("a", "b", "c")]))
    for node in "ac":
        ends.hub.offer("", point(node))
    ends.digests.link_up()
    ends.run()
    assert ends.sent == 1


def test_something_merged_from_the_hub_is_told_when_it_has_settled() -> None:
    ends = Ends()
    ends.receive(Inward(received=[Addressed("", point(origin="hub"))]))
    assert ends.digests.due_s == ends.clock.monotonic_s() + SETTLE_S
    ends.clock.advance(0.5)
    due_s = ends.digests.due_s
    ends.receive(Inward(received=[Addressed("", point("b", origin="hub"))]))
    assert ends.digests.due_s == due_s


def test_what_is_written_here_is_not_told_by_itself() -> None:
    ends = Ends()
    ends.write(point())
    assert ends.digests.due_s is None


def test_what_is_still_on_its_way_is_not_sent_twice() -> None:
    ends = Ends()
    ends.receive(Inward(received=[Addressed("", point("lost"))]))
    ends.digests.link_up()
    ends.digests.root()
    ends.write(point("late"))  # after the root was told: its own message carries it
    ends.hear_of(ends.hub.digests())
    assert ends.sent == 1
    assert [key.node for key, _ in ends.hub] == ["lost"]
    ends.hub.offer("", point("late"))
    ends.run()
    assert ends.sent == 1
    assert not ends.digests.differing
    assert dict(ends.keeper.heads) == dict(ends.hub)


def test_what_waits_in_a_nodes_own_lane_is_not_sent_twice() -> None:
    """The root goes ahead on live; a telemetry backlog may be before the node's points."""
    clock, lane = FakeClock(NOON), CommittedLane(3, "n_gps", 42, 6, 0, 0, SequenceOffsets(), 5)
    keeper = HeadKeeper("VID-001", clock.now_ns, lanes=Lanes(["gps"]))
    digests = Digests(keeper, clock, {"n_gps": lane})
    changes = keeper.begin()
    changes.write([Addressed("", point()), Addressed("", point("door"))])
    digests.changed(changes.apply())
    restarted = Digests(keeper, clock, {"n_gps": lane})
    restarted.link_up()
    for each in (digests, restarted):
        lane.watermark = 4
        each.root()
        answer = each.compare({})
        assert (list(answer.differing), answer.tell) == (["door"], True)
        each.answered(answer)
        each.due_s = None
        each.look()
        assert each.due_s is None, "it is still on its way"
        lane.watermark = 5
        each.look()
        assert each.due_s == clock.monotonic_s() + SETTLE_S
        assert list(each.compare({}).differing) == ["gps"], "it arrived and differs all the same"


def test_a_node_that_is_written_all_the_time_is_sent_in_the_end() -> None:
    ends = Ends()
    ends.digests.link_up()
    for number in range(ROUNDS_MAX + 1):
        assert ends.sent == 0
        ends.digests.root()
        ends.write(point(time=NOON + number))
        ends.hear_of(ends.hub.digests())
    assert ends.sent == 1


def test_what_the_hub_will_not_take_is_offered_once_until_the_link_comes_up_again() -> None:
    ends = Ends()
    ends.receive(Inward(received=[Addressed("", point())]))
    ends.refused = {HeadKey("", "gps", "rate")}
    ends.digests.link_up()
    ends.run()
    assert ends.sent == 1
    assert ends.digests.differing == 1
    ends.digests.link_up()
    ends.run()
    assert ends.sent == 2


def test_digests_that_were_read_before_are_passed_over() -> None:
    ends = Ends()
    ends.receive(Inward(received=[Addressed("", point())]))
    ends.digests.root()
    assert ends.hear_of({}, fresh=False) == []
    assert ends.hear_of({})


def test_an_answer_that_was_never_committed_is_given_again() -> None:
    ends = Ends()
    ends.receive(Inward(received=[Addressed("", point())]))
    ends.digests.root()
    # The batch it stood in is given up, because the stream did not answer; what was read is read again.
    assert ends.hear_of({}, durable=False)
    assert ends.hear_of({})
    assert ends.hear_of({}) == []


def test_no_head_is_sent_whose_time_may_change_and_the_root_is_told_again_instead() -> None:
    ends = Ends()
    ends.write(point())
    ends.digests.root()
    ends.settled = False
    assert ends.hear_of({}) == []
    assert ends.digests.due_s is not None
    ends.settled = True
    assert ends.hear_of({})


@pytest.mark.parametrize("data", [b"", b"[]", b'{"nodes": [1]}', b"\xff"])
def test_garbage_is_said_to_be(data: bytes) -> None:
    with pytest.raises(ValueError, match="no digests"):
        Ends().digests.on_message(Inbound(["s", "digest"], data, True), Inward())


@given(st.lists(addressed, max_size=30))
def test_messages_carry_each_head_once(some: list[Addressed]) -> None:
    heads = Heads()
    for each in some:
        heads.offer(*each)
    for node in heads.nodes():
        assert carried(messages_of(heads.of_node(node))) == heads.of_node(node)


def test_many_and_large_heads_go_in_several_messages() -> None:
    heads = Heads()
    for number in range(450):
        value = "x" * 40_000 if number < 4 else "y"
        heads.offer("", Point("n", f"t{number:03}", NOON, value))
    messages = list(messages_of(heads.of_node("n")))
    assert len(messages) == 6
    assert carried(messages) == heads.of_node("n")


def carried(messages: Iterable[Outgoing]) -> dict[HeadKey, Head]:
    found: dict[HeadKey, Head] = {}
    for message in messages:
        _, addressed = decode_addressed(parse_leaf(message.subject), message.body)
        for parent, each in addressed:
            key = HeadKey.of(parent, each)
            assert key not in found
            found[key] = Head.of(each)
    return found
