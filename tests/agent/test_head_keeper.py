"""Heads on the vehicle: stored with the message that changes them, whole after any restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.commit.heads import HUB_NS, TOLD_NS, HeadKeeper, WriteClock, on_points
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import HeadRow, Inbound, Inward, Outgoing
from backhaul_codec import Opaque, Point, decode, encode_frame, encode_point
from backhaul_codec.state.merge import Head, HeadKey, Heads
from backhaul_codec.wire.addressed import Addressed
from tests.support import strategies

if TYPE_CHECKING:
    from collections.abc import Iterable

NOON = 1_700_000_000_000_000_000


def point(time: int = NOON, value: float = 1.0, origin: str = "", type_: str = "rate") -> Point:
    return Point("gps", type_, time, value, origin=origin)


def keeper() -> HeadKeeper:
    return HeadKeeper("VID-001", lambda: NOON)


def committed(
    made: HeadKeeper, *, written: Iterable[Addressed] = (), inward: Inward | None = None
) -> tuple[list[HeadRow], dict[str, str | int], list[Outgoing]]:
    changes = made.begin()
    changes.write(written)
    if inward is not None:
        changes.receive(inward)
    seen = changes.seen(NOON)
    result = changes.rows(), changes.meta(), seen
    changes.apply()
    return result


def from_hub(*points: Point) -> Inward:
    return Inward(received=[Addressed("", each) for each in points])


@given(st.lists(st.tuples(strategies.names, strategies.points()), max_size=10))
def test_heads_survive_a_restart_bit_for_bit(written: list[tuple[str, Point]]) -> None:
    made = keeper()
    rows, meta, _ = committed(made, written=[Addressed(*each) for each in written])
    again = keeper()
    again.restore(rows, meta)
    assert dict(again.heads) == dict(made.heads)
    assert again.heads.root() == made.heads.root()
    assert again.damaged == 0


def test_nothing_changes_before_the_commit_is_durable() -> None:
    made = keeper()
    changes = made.begin()
    changes.write([Addressed("", point())])
    changes.receive(from_hub(point(NOON + 5, 2.0, "hub")))
    assert changes.rows()
    assert len(made.heads) == 0
    assert made.hub_ns == 0
    assert [change.head.value for change in changes.apply()] == [2.0]
    assert made.heads.get(HeadKey("", "gps", "rate")) == Head(NOON + 5, "hub", 2.0)
    assert made.hub_ns == NOON + 5


def test_a_repeat_writes_nothing() -> None:
    made = keeper()
    committed(made, written=[Addressed("", point())])
    rows, meta, _ = committed(made, written=[Addressed("", point())])
    assert (rows, meta) == ([], {})


@pytest.mark.parametrize("field", ["parent", "node", "type", "key", "crc", "body"])
def test_a_damaged_row_is_left_out_and_counted(field: str) -> None:
    made = keeper()
    (row, other), meta, _ = committed(
        made, written=[Addressed("", point()), Addressed("", point(type_="b"))]
    )
    values: dict[str, Any] = {"crc": row.crc ^ 1, "body": row.body[:-1] + b"\x01"}
    again = keeper()
    again.restore([row._replace(**{field: values.get(field, "x")}), other], meta)
    assert [key.type for key, _ in again.heads] == ["b"]
    assert again.damaged == 1


def test_the_hub_is_told_what_was_known_before_what_is_written_next() -> None:
    made = keeper()
    _, _, seen = committed(made, written=[Addressed("", point())])
    assert seen == []  # nothing of the hub's was ever merged
    _, meta, seen = committed(made, inward=from_hub(point(NOON + 7, 2.0, "hub:ann")))
    assert seen == []  # nothing is written here
    assert meta[HUB_NS] == NOON + 7
    _, meta, (message,) = committed(made, written=[Addressed("", point(NOON + 8))])
    assert (message.lane, message.subject) == ("live", "e.seen")
    (body,) = decode(message.body).points
    assert isinstance(body.value, Opaque)
    assert json.loads(body.value.data) == {"hub_ns": NOON + 7}
    assert meta[TOLD_NS] == NOON + 7
    _, _, seen = committed(made, written=[Addressed("", point(NOON + 9))])
    assert seen == []


def test_it_is_said_on_each_lane_for_itself_because_lanes_overtake_one_another() -> None:
    lanes = Lanes(["gps"])
    made = HeadKeeper("VID-001", lambda: NOON, lanes=lanes)
    inward = from_hub(point(NOON + 7, 2.0, "hub:ann"))
    committed(made, inward=inward)
    gps, other = Point("gps", "t", NOON + 8, 1.0), Point("door", "t", NOON + 8, 1.0)
    _, meta, seen = committed(
        made, written=[Addressed("", gps), Addressed("", other), Addressed("", gps)]
    )
    assert [lanes.place(each)[:2] for each in seen] == [
        ("n_gps", "n.gps.e.seen"), ("live", "e.seen"),
    ]  # fmt: skip
    again = HeadKeeper("VID-001", lambda: NOON, lanes=lanes)
    again.restore([], meta | {HUB_NS: NOON + 7})
    _, _, seen = committed(again, written=[Addressed("", gps), Addressed("", other)])
    assert seen == [], "also after a restart"


def test_what_comes_in_the_same_commit_was_not_known_when_it_was_written() -> None:
    made = keeper()
    _, _, seen = committed(
        made, written=[Addressed("", point())], inward=from_hub(point(NOON + 7, 2.0, "hub"))
    )
    assert seen == []
    later = from_hub(point(NOON + 9, 2.0, "hub"))
    for known, inward in ((NOON + 7, later), (NOON + 9, None)):
        _, _, (message,) = committed(made, written=[Addressed("", point())], inward=inward)
        (body,) = decode(message.body).points
        assert isinstance(body.value, Opaque)
        assert json.loads(body.value.data) == {"hub_ns": known}


def test_a_write_of_the_hub_that_loses_was_seen_all_the_same() -> None:
    made = keeper()
    committed(made, written=[Addressed("", point(NOON + 9))])
    committed(made, inward=from_hub(point(NOON + 7, 2.0, "hub")))
    assert made.hub_ns == NOON + 7


def test_the_vehicles_own_points_come_back_without_counting_as_the_hubs() -> None:
    made = keeper()
    committed(made, inward=from_hub(point(NOON + 7)))
    assert made.hub_ns == 0
    assert len(made.heads) == 1


def test_a_refused_head_is_replaced_only_while_it_stands() -> None:
    made = keeper()
    committed(made, written=[Addressed("", point(NOON + 100))])
    stamped = Addressed("", point(NOON + 1))
    committed(made, inward=Inward(replaced=[(stamped, NOON + 99)]))
    assert made.heads.get(HeadKey("", "gps", "rate")) == Head(NOON + 100, "", 1.0)
    rows, _, _ = committed(made, inward=Inward(replaced=[(stamped, NOON + 100)]))
    assert len(rows) == 1
    assert made.heads.get(HeadKey("", "gps", "rate")) == Head(NOON + 1, "", 1.0)


def test_stamps_are_later_than_the_heads_they_are_to_win_over() -> None:
    made = keeper()
    committed(made, written=[Addressed("", point(NOON + 50))])
    assert made.next_stamp([HeadKey("", "gps", "other")]) == NOON
    assert made.next_stamp([HeadKey("", "gps", "rate")]) == NOON + 51
    committed(made, inward=from_hub(point(NOON + 99, 2.0, "hub")))
    assert made.next_stamp([]) == NOON + 100


def test_stamps_go_on_after_a_restart() -> None:
    made = keeper()
    stamp = made.next_stamp([])
    rows, meta, _ = committed(made, written=[Addressed("", point(stamp))])
    again = HeadKeeper("VID-001", lambda: 0)  # its clock is not set
    again.restore(rows, meta)
    assert again.next_stamp([]) == stamp + 1


@given(st.lists(st.one_of(st.integers(0, 9), st.tuples(st.integers(0, 9))), max_size=30))
def test_stamps_never_go_backwards(events: list[int | tuple[int]]) -> None:
    """The clock jumps to anything, others' stamps come in between: each is greater than all before."""
    now = 0
    stamps = WriteClock(lambda: now)
    greatest = 0
    for each in events:
        if isinstance(each, tuple):
            stamps.seen(each[0])
            greatest = max(greatest, each[0])
        else:
            now = each
            stamp = stamps.next()
            assert stamp > greatest or (greatest == 0 and stamp >= now)
            assert stamp >= now
            greatest = stamp


def test_a_refused_stamp_is_forgotten() -> None:
    stamps = WriteClock(lambda: 10)
    stamps.seen(1000)
    stamps.pull_back(1000, 7)
    assert stamps.next() == 10
    stamps.pull_back(1000, 3)
    assert stamps.next() == 11


def received(subject: str, data: bytes) -> list[Addressed]:
    changes = Inward()
    on_points(Inbound(subject.split("."), data, fresh=True), changes)
    return changes.received


def test_points_and_frames_of_the_hub_are_understood() -> None:
    both = [point(), point(type_="b")]
    assert received("p.gps.rate.%", encode_point(both[0], epoch=0, seq=0)) == [
        Addressed("", both[0])
    ]
    assert received("p.gps", encode_frame(both, epoch=0, seq=0)) == [Addressed("", p) for p in both]
    assert received("p.car.gps.nodeType.%", encode_point(both[0], epoch=0, seq=0)) == [
        Addressed("car", point(type_="nodeType"))
    ]


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("p.gps.rate.%", b"garbage"),
        ("p.gps", encode_point(point(), epoch=0, seq=0)),
        ("p.imu", encode_frame([point()], epoch=0, seq=0)),
        ("p.a.b.c.d.e", encode_point(point(), epoch=0, seq=0)),
        ("p.gps", encode_frame([point()], epoch=0, seq=0)[:-1]),
    ],
)
def test_garbage_changes_nothing(subject: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        received(subject, data)


def test_heads_are_those_of_the_codec() -> None:
    """What the vehicle keeps and what the codec's own Heads would hold are the same."""
    made, plain = keeper(), Heads()
    for number, origin in ((5, "hub"), (5, ""), (4, "hub"), (6, "")):
        committed(made, written=[Addressed("", point(NOON + number, number, origin))])
        plain.offer("", point(NOON + number, number, origin))
    assert dict(made.heads) == dict(plain)
