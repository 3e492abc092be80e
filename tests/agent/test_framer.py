"""Framing: every point is, at every moment, in exactly one durable place, and in order."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_agent.commit.contents import Frame, Points
from backhaul_agent.commit.framer import Framer, pack, unpack
from backhaul_agent.config import FrameConfig
from backhaul_codec import Opaque, Point, decode, encode_frame
from tests.support import strategies

if TYPE_CHECKING:
    from backhaul_agent.commit.framer import FramePlan

LIMITS = FrameConfig(points_max=5, bytes_max=1024, age_s_max=1.0)
NODES = ("a", "b")


def point(node: str, number: int, text_bytes: int = 0) -> Point:
    value = "x" * text_bytes if text_bytes else float(number)
    return Point(node=node, type="n", time=number, value=value)


class Disk:
    """What the ledger would hold: staged rows by id, and the points of messages, per node."""

    def __init__(self) -> None:
        self.staged: dict[int, tuple[str, list[Point]]] = {}
        self.framed: defaultdict[str, list[Point]] = defaultdict(list)
        self.live: list[Point] = []
        self.next_id = 1

    def commit(self, plan: FramePlan) -> list[int]:
        for message in plan.changes.messages:
            if message.lane == "bulk":
                points = decode(message.body).points
                assert len(points) <= LIMITS.points_max * 2
                for each in points:
                    self.framed[each.node].append(each)
            else:
                _, node, type_, _ = message.subject.split(".")
                self.live += decode(message.body, node=node, type=type_, key="").points
        for row_id in plan.changes.unstage:
            del self.staged[row_id]
        ids = []
        for row in plan.changes.staged:
            self.staged[self.next_id] = (row.node, unpack(row.node, row.body))
            ids.append(self.next_id)
            self.next_id += 1
        return ids

    def points(self, node: str) -> list[Point]:
        staged = [p for name, points in self.staged.values() if name == node for p in points]
        return self.framed[node] + staged


ARRIVALS = st.tuples(
    st.sampled_from(["points", "live", "frame"]), st.sampled_from(NODES), st.integers(1, 9)
)
STEPS = st.lists(
    st.tuples(
        st.lists(ARRIVALS, max_size=4),
        st.sampled_from(["commit", "fail", "restart"]),
        st.floats(0, 1.5),
        st.booleans(),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_acknowledged_points_are_in_one_place_and_in_order(
    steps: list[tuple[list[tuple[str, str, int]], str, float, bool]],
) -> None:
    disk, framer, now_s, number = Disk(), Framer(LIMITS), 0.0, 0
    expected: defaultdict[str, list[Point]] = defaultdict(list)
    live: list[Point] = []
    for arrivals, outcome, seconds, flush in steps:
        now_s += seconds
        batch: list[Points | Frame] = []
        fresh: list[tuple[str, list[Point], bool]] = []
        for kind, node, count in arrivals:
            points = [point(node, number + index) for index in range(count)]
            number += count
            fresh.append((node, points, kind == "live"))
            if kind == "frame":
                times = (points[0].time, points[-1].time)
                batch.append(Frame(node, encode_frame(points, epoch=0, seq=0), count, times))
            else:
                batch.append(Points(node, points, live=kind == "live"))
        plan = framer.plan(batch, now_s, flush=flush)
        if outcome != "fail":
            framer.applied(plan, disk.commit(plan))
            for node, points, is_live in fresh:
                (live if is_live else expected[node]).extend(points)
        if outcome == "restart":
            framer = Framer(LIMITS)
            for row_id, (node, points) in disk.staged.items():
                framer.restore(node, row_id, points, now_s)
        for node in NODES:
            assert disk.points(node) == expected[node]
        assert disk.live == live
        assert framer.buffered_points == sum(len(points) for _, points in disk.staged.values())
    framer.applied(plan := framer.plan([], now_s, flush=True), disk.commit(plan))
    assert not disk.staged
    assert framer.deadline_s() is None


def test_a_full_frame_never_touches_the_staged_table() -> None:
    plan = Framer(LIMITS).plan([Points("a", [point("a", n) for n in range(10)])], 0.0)
    assert [len(decode(m.body).points) for m in plan.changes.messages] == [5, 5]
    assert not plan.changes.staged


def test_a_frame_is_cut_by_bytes() -> None:
    plan = Framer(LIMITS).plan([Points("a", [point("a", n, 600) for n in range(3)])], 0.0)
    assert [len(decode(m.body).points) for m in plan.changes.messages] == [1, 1]
    assert [row.points for row in plan.changes.staged] == [1]


def test_one_value_larger_than_a_frame_is_a_frame_of_its_own() -> None:
    plan = Framer(LIMITS).plan([Points("a", [point("a", 0, 5000), point("a", 1)])], 0.0)
    assert [len(decode(m.body).points) for m in plan.changes.messages] == [1]


def test_age_frames_what_is_staged() -> None:
    framer = Framer(LIMITS)
    framer.applied(framer.plan([Points("a", [point("a", 1)])], 10.0), [1])
    assert framer.deadline_s() == 11.0
    assert not framer.plan([], 10.9).changes
    plan = framer.plan([], 11.0)
    assert plan.changes.unstage == [1]
    assert len(plan.changes.messages) == 1


def test_points_that_cannot_be_encoded_do_not_stop_the_others() -> None:
    bad = Point(node="a", type="n", time=2, value=None)  # type: ignore[arg-type]
    plan = Framer(LIMITS).plan([Points("a", [point("a", 1), bad, point("a", 3)])], 0.0, flush=True)
    times = [p.time for m in plan.changes.messages for p in decode(m.body).points]
    assert times == [1, 3]
    assert plan.lost_points == 1


@given(st.lists(strategies.points("a"), max_size=20))
def test_staged_points_keep_every_bit(points: list[Point]) -> None:
    assert list(map(strategies.exact, unpack("a", pack(points)))) == [
        strategies.exact(point) for point in points
    ]


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        -0.0,
        float("inf"),
        -(2**63),
        2**64 - 1,
        "",
        "grüße",
        b"\x00",
        Opaque(6, b"{}"),
        Opaque(200, b"x"),
    ],
)
def test_staged_points_keep_their_exact_values(value: object) -> None:
    before = Point(node="a", type="n", time=-5, value=value, key="k", tombstone=3, origin="o")  # type: ignore[arg-type]
    (after,) = unpack("a", pack([before]))
    assert after == before
    assert type(after.value) is type(before.value)
    assert repr(after.value) == repr(before.value)
