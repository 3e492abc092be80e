"""Refused stamps: what was written together is stamped and sent again together, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_agent.sync.requests import CreateRequest, NodeRequest, PointRequest, SetRequest
from backhaul_agent.sync.restamp import Restamps
from backhaul_codec import Point
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import parse_leaf
from backhaul_codec.wire.addressed import Addressed, decode_addressed
from tests.agent.config_vehicle import CAR, NOON, Vehicle

if TYPE_CHECKING:
    from backhaul_agent.ledger.rows import Outgoing

HOUR = 3600 * 10**9


class Hub:
    """Refuses stamps of a vehicle whose clock is an hour ahead."""

    def __init__(self, it: Vehicle) -> None:
        self.it = it
        self.now_ns = NOON
        self.restamps = Restamps(it.keeper, lambda: it.now_ns)
        it.now_ns = NOON + HOUR

    def refuse(self, *series: str, time: int) -> list[Outgoing]:
        """Say so for each series in one batch, commit, and return what is sent."""
        changes = Inward()
        body = json.dumps({"time": time, "now_ns": self.now_ns}).encode()
        for each in series:
            self.restamps.on_message(Inbound(f"s.restamp.{each}".split("."), body, True), changes)
        heads = self.it.keeper.begin()
        heads.receive(changes)
        heads.apply()
        for message in changes.messages:
            _, addressed = decode_addressed(parse_leaf(message.subject), message.body)
            for parent, point in addressed:
                head = self.it.keeper.heads.get(HeadKey.of(parent, point))
                assert head is not None
                assert head.to_point(HeadKey.of(parent, point)) == point
        return changes.messages


@pytest.fixture
def it() -> Vehicle:
    return Vehicle()


@pytest.fixture
def hub(it: Vehicle) -> Hub:
    return Hub(it)


def times(it: Vehicle) -> set[int]:
    return {head.time for _, head in it.keeper.heads}


def test_a_point_is_written_again_with_the_clock_once_that_is_right(it: Vehicle, hub: Hub) -> None:
    it.set("gps", rate=5)
    it.now_ns = NOON + 7
    (message,) = hub.refuse("gps.rate.%", time=NOON + HOUR)
    assert message.subject == "p.gps.rate.%"
    assert times(it) == {NOON + 7}
    it.now_ns = NOON
    it.set("gps", mode=1)  # what comes next is not of the refused hour either
    assert times(it) == {NOON + 7, NOON + 8}


def test_with_the_hubs_time_while_the_clock_is_wrong(it: Vehicle, hub: Hub) -> None:
    it.set("gps", rate=5)
    hub.refuse("gps.rate.%", time=NOON + HOUR)
    assert times(it) == {NOON + 1}
    it.set("gps", rate=6)
    assert it.value("gps", "rate") == 6.0


def test_what_was_one_frame_is_one_again(it: Vehicle, hub: Hub) -> None:
    it.set("gps", rate=5, mode="fast")
    (message,) = hub.refuse("gps.mode.%", "gps.rate.%", time=NOON + HOUR)
    assert message.subject == "p.gps"
    assert times(it) == {NOON + 1}
    assert hub.refuse("gps.mode.%", "gps", time=NOON + HOUR) == []


def test_a_refused_node_comes_again_with_its_edge(it: Vehicle, hub: Hub) -> None:
    it.do(it.writes.create(CreateRequest("gps", points=[PointRequest("rate", value=5)])))
    (message,) = hub.refuse(f"{CAR}.gps.nodeType.%", "gps.rate.%", time=NOON + HOUR)
    assert message.subject == f"p.{CAR}.gps"
    assert times(it) == {NOON + 1}
    assert it.parents("gps") == [CAR]


def test_a_deleted_node_with_two_edges(it: Vehicle, hub: Hub) -> None:
    it.now_ns = NOON - HOUR
    it.create("a")
    it.create("gps", "a")
    it.receive(Addressed(CAR, Point("gps", "nodeType", NOON - HOUR, "node")))
    it.now_ns = NOON + HOUR
    it.do(it.writes.delete(NodeRequest("gps")))
    messages = hub.refuse(f"{CAR}.gps", time=NOON + HOUR)
    assert {message.subject for message in messages} == {
        f"p.{CAR}.gps.nodeType.%", "p.a.gps.nodeType.%",
    }  # fmt: skip
    assert it.keeper.tree.is_deleted("gps")


def test_a_head_that_is_another_by_now_stays(it: Vehicle, hub: Hub) -> None:
    it.set("gps", rate=5)
    it.set("gps", rate=6)
    assert hub.refuse("gps.rate.%", time=NOON + HOUR) == []
    assert hub.refuse("gps.unheard.%", time=NOON + HOUR) == []
    assert hub.restamps.restamped == 0


def test_what_the_hub_wrote_and_does_not_know_any_more_is_its_word_still(
    it: Vehicle, hub: Hub
) -> None:
    it.receive(Addressed("", Point("gps", "b", NOON + 2 * HOUR, 1.0, origin="hub")))
    (message,) = hub.refuse("gps.b.%", time=NOON + 2 * HOUR)
    assert message.subject == "p.gps.b.%"
    (head,) = [head for _, head in it.keeper.heads]
    assert (head.origin, head.value, head.time) == ("hub", 1.0, NOON + HOUR)


def test_a_new_stamp_is_above_what_stands_at_the_hub(it: Vehicle, hub: Hub) -> None:
    it.set("gps", rate=5)
    it.now_ns = NOON
    hub.now_ns = NOON + 60 * 10**9  # the newest that stands there
    hub.refuse("gps.rate.%", time=NOON + HOUR)
    assert times(it) == {NOON + 60 * 10**9 + 1}


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("s.restamp.gps.rate.%", b"garbage"),
        ("s.restamp.gps.rate.%", b'{"time": 5, "now_ns": 5}'),
        ("s.restamp.a.b.c.d.e", b'{"time": 6, "now_ns": 5}'),
        ("s.restamp", b'{"time": 6, "now_ns": 5}'),
    ],
)
def test_garbage_is_said_to_be(it: Vehicle, hub: Hub, subject: str, body: bytes) -> None:
    it.do(it.writes.set(SetRequest("gps", [PointRequest("rate", value=5)])))
    with pytest.raises(ValueError, match=r"."):
        hub.restamps.on_message(Inbound(subject.split("."), body, True), Inward())
