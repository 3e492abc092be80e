"""Config written on the vehicle: one message for what belongs together, or a clear refusal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.errors import RefusedError
from backhaul_agent.sync.requests import (
    CreateRequest,
    MirrorRequest,
    MoveRequest,
    NodeRequest,
    PointRequest,
    SetRequest,
    changed_subject,
    describe,
    find,
    read,
)
from backhaul_codec import Opaque, Point
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.wire.addressed import Addressed
from tests.agent.config_vehicle import CAR, NOON, Vehicle

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def it() -> Vehicle:
    return Vehicle()


def refusal(attempt: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        attempt()
    return caught.value.code, caught.value.message


def test_one_point_is_a_point(it: Vehicle) -> None:
    assert it.set("gps", rate=5) == ["p.gps.rate.%"]
    assert it.keeper.heads.get(HeadKey("", "gps", "rate")) == Head(NOON, "", 5.0)


def test_several_points_are_one_frame_with_one_stamp(it: Vehicle) -> None:
    assert it.set("gps", rate=5, mode="fast") == ["p.gps"]
    assert {head.time for _, head in it.keeper.heads} == {NOON}
    assert it.value("gps", "mode") == "fast"


def test_the_next_write_wins_whatever_the_clock_does(it: Vehicle) -> None:
    it.set("gps", rate=5)
    it.now_ns = 0
    it.set("gps", rate=6)
    assert it.value("gps", "rate") == 6.0
    it.receive(Addressed("", Point("gps", "rate", NOON * 2, 7.0, origin="hub")))
    it.set("gps", rate=8)
    assert it.value("gps", "rate") == 8.0


def test_values_are_what_json_and_dtype_say(it: Vehicle) -> None:
    points = [
        PointRequest("a", value=2**60, dtype="int64"),
        PointRequest("b", value={"x": [1]}, dtype="json"),
        PointRequest("c", "k", value="t"),
    ]
    it.do(it.writes.set(SetRequest("n", points)))
    assert it.value("n", "a") == 2**60
    assert it.value("n", "b") == Opaque(6, b'{"x":[1]}')
    assert it.value("n", "c", "k") == "t"


def test_a_point_is_deleted_and_written_again(it: Vehicle) -> None:
    it.set("gps", rate=5)
    delete = SetRequest("gps", [PointRequest("rate", delete=True)])
    it.do(it.writes.set(delete))
    assert it.value("gps", "rate") is False
    it.do(it.writes.set(delete))
    assert it.keeper.heads.get(HeadKey("", "gps", "rate")) == Head(NOON + 2, "", 5.0, 1)
    it.set("gps", rate=6)
    assert it.value("gps", "rate") == 6.0
    assert it.keeper.heads.get(HeadKey("", "gps", "rate")) == Head(NOON + 3, "", 6.0, 2)


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (SetRequest("gps", []), "bad_field", "nothing"),
        (SetRequest("", [PointRequest("a", value=1)]), "bad_field", "empty"),
        (SetRequest("\ud800", [PointRequest("a", value=1)]), "bad_field", "surrogate"),
        (SetRequest("gps", [PointRequest("", value=1)]), "bad_field", "not empty"),
        (SetRequest("gps", [PointRequest("a")]), "bad_value", 'no "value"'),
        (SetRequest("gps", [PointRequest("a", value=None)]), "bad_value", "a"),
        (SetRequest("gps", [PointRequest("a", value="x" * 1001)]), "too_large", "1000"),
        (SetRequest("gps", [PointRequest("a", value=1)] * 1001), "too_large", "1000"),
        (SetRequest("gps", [PointRequest("a", value=1)] * 2), "bad_field", "twice"),
        (SetRequest("gps", [PointRequest("a", delete=True)]), "no_such_point", "to delete"),
        (SetRequest("gps", [PointRequest("a", value=1)], "car"), "no_such_node", "no edge"),
        (SetRequest("gps", [PointRequest("x" * 256, value=1)]), "bad_value", "255"),
    ],
)
def test_a_refused_set_says_why_and_writes_nothing(
    it: Vehicle, request_: SetRequest, code: str, words: str
) -> None:
    found, message = refusal(lambda: it.writes.set(request_))
    assert found == code
    assert words in message
    assert len(it.keeper.heads) == 0


def test_a_write_may_not_be_larger_than_a_message(it: Vehicle) -> None:
    import random

    noise = random.Random(1)
    points = [PointRequest(f"t{n}", value=noise.randbytes(500).hex()) for n in range(1000)]
    assert refusal(lambda: it.writes.set(SetRequest("n", points)))[0] == "too_large"


def test_a_point_deleted_128_times_is_spent(it: Vehicle) -> None:
    it.receive(Addressed("", Point("gps", "rate", NOON, 1.0, tombstone=255)))
    code, _ = refusal(lambda: it.set("gps", rate=5))
    assert code == "tombstone_spent"


def test_a_node_is_created_with_edge_and_points_in_one_frame(it: Vehicle) -> None:
    assert it.create("gps", "", PointRequest("rate", value=5)) == [f"p.{CAR}.gps"]
    assert it.parents("gps") == [CAR]
    assert it.value("gps", "rate") == 5.0
    assert it.value("gps", "nodeType", parent=CAR) == "node"
    assert it.create("antenna", "gps") == ["p.gps.antenna.nodeType.%"]
    assert it.keeper.tree.ancestors("antenna") == {"gps", CAR}


def test_edge_points_go_with_their_edge(it: Vehicle) -> None:
    it.create("gps")
    assert it.set("gps", CAR, mount="roof") == [f"p.{CAR}.gps.mount.%"]
    assert it.set("gps", CAR, mount="roof", side="left") == [f"p.{CAR}.gps"]
    assert it.value("gps", "side", parent=CAR) == "left"
    for type_ in ("nodeType", "node:x"):
        code, _ = refusal(lambda type_=type_: it.set("gps", CAR, **{type_: "x"}))  # type: ignore[misc]
        assert code == "bad_field"


def test_move_writes_the_new_edge_first(it: Vehicle) -> None:
    for node in ("a", "b"):
        it.create(node)
    it.create("gps", "a")
    subjects = it.do(it.writes.move(MoveRequest("gps", "b")))
    assert subjects == ["p.b.gps.nodeType.%", "p.a.gps.nodeType.%"]
    assert it.parents("gps") == ["b"]
    it.do(it.writes.move(MoveRequest("gps", "a")))  # and back: the deleted edge lives again
    assert it.parents("gps") == ["a"]


def test_a_node_without_an_edge_is_moved_from_the_root(it: Vehicle) -> None:
    it.create("a")
    it.set("gps", rate=1)
    assert it.parents("gps") == [CAR]
    assert it.do(it.writes.move(MoveRequest("gps", "a"))) == ["p.a.gps.nodeType.%"]
    assert it.parents("gps") == ["a"]


def test_mirror_gives_a_node_two_parents(it: Vehicle) -> None:
    it.create("a")
    it.create("gps")
    it.do(it.writes.mirror(MirrorRequest("gps", "a")))
    assert it.parents("gps") == [CAR, "a"]
    it.set("imu", rate=1)
    it.do(it.writes.mirror(MirrorRequest("imu", "a")))
    assert it.parents("imu") == [CAR, "a"]


def test_which_parent_is_meant_must_be_said(it: Vehicle) -> None:
    for node in ("a", "b", "c"):
        it.create(node)
    it.create("gps", "a")
    it.do(it.writes.mirror(MirrorRequest("gps", "b")))
    code, message = refusal(lambda: it.writes.move(MoveRequest("gps", "c")))
    assert (code, "'a', 'b'" in message) == ("ambiguous", True)
    code, _ = refusal(lambda: it.writes.move(MoveRequest("gps", "c", "x")))
    assert code == "no_such_node"
    it.do(it.writes.move(MoveRequest("gps", "c", "b")))
    assert it.parents("gps") == ["a", "c"]


def test_delete_and_undelete(it: Vehicle) -> None:
    it.create("a")
    it.create("gps", "a", PointRequest("rate", value=5))
    it.do(it.writes.mirror(MirrorRequest("gps", CAR)))
    it.do(it.writes.delete(NodeRequest("gps", "a")))
    assert it.parents("gps") == [CAR]
    it.do(it.writes.delete(NodeRequest("gps")))
    assert it.keeper.tree.is_deleted("gps")
    assert refusal(lambda: it.writes.undelete(NodeRequest("gps")))[0] == "ambiguous"
    it.do(it.writes.undelete(NodeRequest("gps", "a")))
    assert it.parents("gps") == ["a"]
    assert it.value("gps", "rate") == 5.0
    it.set("free", x=1)
    it.do(it.writes.delete(NodeRequest("free")))
    assert it.keeper.tree.is_deleted("free")
    assert refusal(lambda: it.writes.delete(NodeRequest("free")))[0] == "no_such_node"
    it.create("free", "a")
    assert it.parents("free") == ["a"]


@pytest.mark.parametrize(
    ("attempt", "code", "words"),
    [
        (lambda it: it.writes.move(MoveRequest("a", "c")), "cycle", "c > a > b > c"),
        (lambda it: it.writes.mirror(MirrorRequest("a", "b")), "cycle", "b > a > b"),
        (lambda it: it.writes.mirror(MirrorRequest("b", "b")), "cycle", "b > b"),
        (lambda it: it.create("a"), "exists", "already"),
        (lambda it: it.create(CAR), "exists", "already"),
        (lambda it: it.create("x", "nowhere"), "no_such_node", "nowhere"),
        (lambda it: it.writes.mirror(MirrorRequest("b", "a")), "exists", "already"),
        (lambda it: it.writes.move(MoveRequest("b", "a")), "exists", "already"),
        (lambda it: it.writes.move(MoveRequest("x", "a")), "no_such_node", "x"),
        (lambda it: it.writes.delete(NodeRequest(CAR)), "bad_field", "root"),
        (lambda it: it.writes.delete(NodeRequest("c", "a")), "no_such_node", "'b'"),
        (lambda it: it.writes.undelete(NodeRequest("c")), "no_such_node", "deleted"),
        (lambda it: it.writes.create(CreateRequest("")), "bad_field", "empty"),
    ],
    ids=map(str, range(13)),
)
def test_the_tree_stays_a_tree(
    it: Vehicle, attempt: Callable[[Vehicle], Any], code: str, words: str
) -> None:
    it.create("a")
    it.create("b", "a")
    it.create("c", "b")
    before = dict(it.keeper.heads)
    found, message = refusal(lambda: attempt(it))
    assert found == code
    assert words in message
    assert dict(it.keeper.heads) == before


def test_putting_a_deleted_edge_back_may_close_a_cycle(it: Vehicle) -> None:
    it.create("a")
    it.create("b", "a")
    it.do(it.writes.move(MoveRequest("b", CAR)))
    it.do(it.writes.move(MoveRequest("a", "b")))
    code, message = refusal(lambda: it.writes.undelete(NodeRequest("b", "a")))
    assert code == "cycle"
    assert "a > b > a" in message


def test_what_is_read_is_what_was_written(it: Vehicle) -> None:
    it.create(
        "gps", "", PointRequest("rate", value=5), PointRequest("map", "k.1", value=b"\x00".hex())
    )
    it.set("imu", rate=1)
    found = find(it.keeper.heads, "agent.get.gps", b"")
    assert [(point.get("parent"), point["type"], point["key"]) for point in found] == [
        (None, "map", "k.1"), (None, "rate", ""), (CAR, "nodeType", ""),
    ]  # fmt: skip
    assert found[1] == {
        "node": "gps", "type": "rate", "key": "", "value": 5.0, "dtype": "float64",
        "time": NOON, "origin": "", "tombstone": 0,
    }  # fmt: skip
    assert find(it.keeper.heads, "agent.get.gps.map.k%2E1", b"")[0]["type"] == "map"
    assert len(find(it.keeper.heads, "agent.get", b"")) == 4
    assert len(find(it.keeper.heads, "agent.get.gps", b'{"parent": ""}')) == 2
    assert find(it.keeper.heads, "agent.get.gps.rate.x", b"") == []
    it.do(it.writes.set(SetRequest("imu", [PointRequest("rate", delete=True)])))
    assert find(it.keeper.heads, "agent.get.imu", b"") == []
    (gone,) = find(it.keeper.heads, "agent.get.imu", b'{"deleted": true}')
    assert (gone["deleted"], gone["tombstone"]) == (True, 1)


@pytest.mark.parametrize(
    ("subject", "data", "code"),
    [
        ("agent.get.a.b.c.d", b"", "bad_subject"),
        ("agent.get.%zz", b"", "bad_subject"),
        ("agent.get.a", b"{", "bad_json"),
        ("agent.get.a", b'{"deletd": true}', "bad_field"),
        ("agent.get.a", b"[1]", "bad_field"),
    ],
)
def test_a_get_that_is_not_understood(it: Vehicle, subject: str, data: bytes, code: str) -> None:
    assert refusal(lambda: find(it.keeper.heads, subject, data))[0] == code


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader_of_requests(data: bytes) -> None:
    with contextlib.suppress(RefusedError):
        read(data, SetRequest)


def test_a_change_is_announced_where_its_point_would_be() -> None:
    assert changed_subject(HeadKey("", "gps", "rate")) == "agent.changed.gps.rate.%"
    assert changed_subject(HeadKey("car", "g.1", "t", "k")) == "agent.changed.car.g%2E1.t.k"
    shown = describe(HeadKey("car", "gps", "t", "k"), Head(1, "hub", 2, 0))
    assert (shown["parent"], shown["value"], shown["dtype"]) == ("car", 2, "int64")
