"""Bundles: which nodes share one, and what is kept apart."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_agent.commit.contents import Frame, Points
from backhaul_agent.commit.framer import Framer, orders
from backhaul_agent.commit.participant import Draft
from backhaul_agent.commit.queues import BUNDLES_BYTES_MAX, BUNDLES_MAX, Counters, PublishQueues
from backhaul_agent.config import FrameConfig
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import LedgerChanges
from backhaul_codec import Point, decode, encode_bundle, encode_frame
from tests.agent.writers import CONFIG
from tests.support.recordings import data_directory, kit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_agent.ledger.rows import Outgoing

LIMITS = FrameConfig(points_max=9, bytes_max=1024, age_s_max=1.0)


def reading(node: str, time: int, type_: str = "t") -> Point:
    return Point(node, type_, time, float(time))


def said(messages: Sequence[Outgoing]) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Return each message's subject, and node, type and time of its points."""
    return [
        (each.subject, [(p.node, p.type, p.time) for p in decode(each.body).points])
        for each in messages
    ]


def test_all_nodes_that_share_the_lane_go_in_one_message_round_by_round() -> None:
    framer = Framer(LIMITS)
    arrivals = [Points("b", [reading("b", 1)]), Points("a", [reading("a", 4), reading("a", 3)])]
    framer.applied(framer.plan(arrivals, 0.0), [1, 2])
    plan = framer.plan([Points("b", [reading("b", 0)])], 1.0)
    assert said(plan.changes.messages) == [
        ("b", [("a", "t", 4), ("b", "t", 1), ("a", "t", 3), ("b", "t", 0)])
    ]
    assert plan.changes.messages[0].times == (0, 4)
    assert plan.changes.unstage == [1, 2]


@pytest.mark.parametrize(
    ("times", "places"),
    [
        ([("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)], ["a1 b1 a2 b2 a3"]),
        ([("b", 9), ("a", 1), ("b", 8), ("a", 1)], ["a1 b9 a1 b8"]),
        ([("b", 1), ("a", 1), ("a", 2), ("a", 3)], ["a1 a2 a3 b1"]),
        ([("b", 0), ("a", 1), ("a", 2), ("a", 3)], ["a1 a2 a3 b0", "b0 a1 a2 a3"]),
        (
            [("b", 0), ("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)],
            ["a1 b0 a3 b2 a5 b4", "b0 a1 b2 a3 b4 a5"],
        ),
    ],
)
def test_series_that_are_read_as_often_come_in_rounds_others_side_by_side_or_as_they_came(
    times: list[tuple[str, int]], places: list[str]
) -> None:
    found = orders([reading(node, time) for node, time in times])
    assert [" ".join(f"{p.node}{p.time}" for p in points) for points in found] == places


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_bundle_has_the_smaller_of_its_orders(in_turn: bool) -> None:
    """A bus that is polled in turn, at odd moments, as it came; series with periods of their own side by side."""
    random_ = random.Random(17)
    if in_turn:
        times = [(f"s{n * 7 % 10}", n * 90_000 + random_.randrange(9000)) for n in range(195)]
    else:
        times = [(f"s{n}", at * (n + 7) * 1000) for n in range(10) for at in range(200 // (n + 7))]
        times.sort(key=lambda each: each[1])
    points = [Point("car", type_, time, float(time % 7)) for type_, time in times]
    plan = Framer(FrameConfig()).plan([Points("car", points)], 0.0, flush=True)
    [message] = plan.changes.messages
    side_by_side, as_they_came = (encode_bundle(each, epoch=0, seq=0) for each in orders(points))
    smaller, other = (as_they_came, side_by_side) if in_turn else (side_by_side, as_they_came)
    assert len(message.body) == len(smaller) < len(other)


@pytest.mark.slow
def test_a_recorded_car_takes_no_more_in_bundles_than_in_frames() -> None:
    directory = data_directory()
    if directory is None:
        pytest.skip("recordings absent: set BACKHAUL_DATA to the directory that holds them")
    points = next(iter(kit(directory).values()))[:20_000]
    parts = [points[at : at + 200] for at in range(0, len(points), 200)]
    arrivals = [Points("car", part) for part in parts]
    plan = Framer(FrameConfig(points_max=200)).plan(arrivals, 0.0, flush=True)
    frames = sum(len(encode_frame(part, epoch=0, seq=0)) for part in parts)
    assert len(plan.changes.messages) == len(parts)
    assert sum(len(each.body) for each in plan.changes.messages) < 1.01 * frames


def test_a_node_with_a_lane_of_its_own_is_in_no_bundle() -> None:
    """Else its points would go where only those of the others belong, and behind them."""
    lanes = Lanes(["gps"])
    plan = Framer(LIMITS, lanes.has_own).plan(
        [Points("gps", [reading("gps", 1)]), Points("a", [reading("a", 2)])], 0.0, flush=True
    )
    addressed = [lanes.place(each) for each in plan.changes.messages]
    assert [(each.lane, each.subject) for each in addressed] == [
        (lanes.of_points("gps"), "n.gps.f.gps"),
        ("bulk", "b"),
    ]


def test_a_node_that_was_given_a_lane_since_its_points_were_staged_goes_there() -> None:
    framer = Framer(LIMITS, Lanes(["gps"]).has_own)
    framer.restore("gps", 7, [reading("gps", 1)], 0.0)
    framer.restore("a", 8, [reading("a", 2)], 0.0)
    plan = framer.plan([], 5.0)
    assert [each.subject for each in plan.changes.messages] == ["f.gps", "b"]
    assert sorted(plan.changes.unstage) == [7, 8]


def test_a_clients_frame_goes_behind_its_nodes_points_and_cuts_no_bundle_without_any() -> None:
    framer = Framer(LIMITS)
    framer.applied(framer.plan([Points("a", [reading("a", 1)])], 0.0), [1])
    body = encode_frame([reading("b", 2)], epoch=0, seq=0)
    of_b = framer.plan([Frame("b", body, 1, (2, 2))], 0.1)
    assert [each.subject for each in of_b.changes.messages] == ["f.b"]
    body = encode_frame([reading("a", 2)], epoch=0, seq=0)
    of_a = framer.plan([Frame("a", body, 1, (2, 2))], 0.1)
    assert said(of_a.changes.messages) == [("b", [("a", "t", 1)]), ("f.a", [("a", "t", 2)])]


def test_stamps_of_other_kinds_are_in_other_bundles() -> None:
    arrivals = [
        Points("a", [reading("a", 1)], boot=3, clock=2),
        Points("b", [reading("b", 2)], clock=2),
        Points("c", [reading("c", 3)], boot=3, clock=2),
    ]
    plan = Framer(LIMITS).plan(arrivals, 0.0, flush=True, mark=3)
    assert [(each.boot, decode(each.body).clock) for each in plan.changes.messages] == [
        (3, 2),
        (0, 2),
    ]
    assert said(plan.changes.messages)[0][1] == [("a", "t", 1), ("c", "t", 3)]


def test_a_bundle_is_full_by_the_points_of_all_its_nodes() -> None:
    arrivals = [Points(f"n{n}", [reading(f"n{n}", n)]) for n in range(12)]
    plan = Framer(LIMITS).plan(arrivals, 0.0)
    assert [len(points) for _, points in said(plan.changes.messages)] == [9]
    assert [row.node for row in plan.changes.staged] == ["n9", "n10", "n11"]


def test_rows_found_at_the_start_go_in_as_many_bundles_as_their_bytes_need() -> None:
    """Each node's were few enough for a message of its own; one of all of them no server would take."""
    framer = Framer(LIMITS)
    for n in range(8):
        framer.restore(f"n{n}", n, [Point(f"n{n}", "log", n, "x" * 400)], 0.0)
    plan = framer.plan([], 5.0)
    assert [len(points) for _, points in said(plan.changes.messages)] == [2, 2, 2, 2]
    assert sorted(plan.changes.unstage) == list(range(8))


@pytest.mark.parametrize(("value_bytes", "kept"), [(10, BUNDLES_MAX), (300_000, 3), (1 << 20, 1)])
def test_the_newest_bundles_stay_in_memory_as_far_as_there_is_room(
    value_bytes: int, kept: int
) -> None:
    """While the link is away nobody takes them."""
    nothing: Any = cast("Any", None)
    noise, framer = random.Random(1), Framer(LIMITS)
    arrivals = PublishQueues(CONFIG.ingest, framer, nothing, nothing, Counters(), lambda: None)
    for time in range(kept + 4):
        values = [Point("a", "log", time, noise.randbytes(value_bytes))]
        draft = Draft(LedgerChanges(), 0.0, flush=True, contents=[Points("a", values)])
        arrivals.contribute(draft)
        arrivals.committed(draft)
    found = arrivals.take_newest_frames()
    assert [decode(each).points[0].time for each in found] == list(range(4, kept + 4))
    assert kept == 1 or sum(map(len, found)) <= BUNDLES_BYTES_MAX
    assert arrivals.take_newest_frames() == []
