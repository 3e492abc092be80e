"""Which server of a cluster lacks messages that another one holds, by what each says that it has."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backhaul_hub.streams.replicas import (
    Damage,
    Replica,
    ReplicaJudge,
    clocks_off,
    pause_s,
    replicas,
    switched_off,
)

UP, DOWN = "UP_00", "DOWN"


def whole(last: int, *, first: int = 1, leads: bool = False) -> Replica:
    return Replica(first, last, last - first + 1, leads=leads)


def found(*looks: dict[str, Replica], stream: str = UP) -> list[Damage]:
    """Return the damages after looks in a row."""
    judge = ReplicaJudge({DOWN})
    for look in looks:
        judge.look({stream: look})
    return judge.damages


def test_a_server_that_lacks_messages_in_the_middle_is_named_with_one_that_has_them() -> None:
    looks = (
        {"a": whole(end, leads=True), "b": Replica(1, end, end - 37), "c": whole(end)}
        for end in (1000, 1100, 1200)
    )
    assert found(*looks) == [Damage("b", UP, 37, leads=False, held_by="a")]


def test_a_leader_is_named_too() -> None:
    look = {"a": Replica(1, 900, 800, leads=True), "b": whole(900)}
    assert found(look, look, look) == [Damage("a", UP, 100, leads=True, held_by="b")]


def test_a_server_that_lacks_the_front_or_all_is_named() -> None:
    front = {"a": Replica(201, 900, 700), "b": whole(900), "c": whole(900)}
    assert [each.missing for each in found(front, front, front)] == [200]
    everything = {"a": Replica(901, 900, 0), "b": whole(900)}
    assert [each.missing for each in found(everything, everything, everything)] == [900]


def test_one_look_says_nothing() -> None:
    look = {"a": Replica(1, 900, 800), "b": whole(900)}
    assert found(look) == found(look, look) == []
    healthy = {"a": whole(900), "b": whole(900)}
    assert found(look, look, look, healthy, look) == []


def test_a_message_that_was_deleted_everywhere_is_no_damage() -> None:
    look = {"a": Replica(1, 900, 899), "b": Replica(1, 900, 899), "c": Replica(1, 900, 899)}
    assert found(look, look, look) == []


@given(
    st.lists(st.tuples(*[st.integers(0, 500)] * 3, st.integers(0, 300)), min_size=3, max_size=6),
    st.integers(1, 50),
)
def test_servers_that_take_in_and_drop_each_in_its_time_are_whole(
    steps: list[tuple[int, int, int, int]], kept: int
) -> None:
    """Whole servers lag by any number, also behind what the others have dropped already."""
    looks, end = [], 0
    deleted = 7
    for a, b, c, more in steps:
        end += more
        look = {}
        for name, lag in (("a", a), ("b", b), ("c", c)):
            last = max(0, end - lag)
            first = max(1, last - kept * 20)
            absent = sum(1 for seq in range(deleted, last + 1, 11) if first < seq < last)
            look[name] = Replica(first, last, max(0, last - first + 1 - absent))
        looks.append(look)
    # A server goes on from where it was.
    for name in ("a", "b", "c"):
        best = 0
        for look in looks:
            if look[name].last_seq < best:
                return
            best = look[name].last_seq
    assert found(*looks) == []


def test_a_server_that_copies_all_anew_is_not_damaged() -> None:
    """Nor is the one that it copies from, which has deleted messages that the copy has not come to."""
    looks = (
        {
            "a": Replica(5001, 90_000, 84_000),
            "b": whole(end, first=5001) if end else Replica(1, 0, 0),
        }
        for end in (0, 0, 6000, 40_000)
    )
    assert found(*looks) == []


def test_a_leader_that_ends_before_another_is_named() -> None:
    """One that lost its store, and was chosen before it had copied anything."""
    for stream in (UP, DOWN):
        look = {"a": Replica(1, 0, 0, leads=True), "b": whole(900), "c": whole(850)}
        assert found(look, look, look, stream=stream) == [
            Damage("a", stream, 900, leads=True, held_by="b")
        ]


def test_of_a_stream_with_the_newest_alone_servers_at_the_same_end_are_compared() -> None:
    a, b = Replica(1, 900, 50, leads=True), Replica(3, 900, 44)
    assert found({"a": a, "b": b}, {"a": a, "b": b}, stream=DOWN) == [
        Damage("b", DOWN, 6, leads=False, held_by="a")
    ]
    behind = Replica(3, 899, 44)
    assert found({"a": a, "b": behind}, {"a": a, "b": behind}, stream=DOWN) == []


def test_what_servers_say_is_read_and_one_whose_jetstream_is_off_is_left_out() -> None:
    def stream(name: str) -> dict[str, Any]:
        state = {"first_seq": 3, "last_seq": 9, "messages": 6, "bytes": 1}
        return {"name": name, "state": state, "cluster": {"leader": "b"}}

    answers = [
        {
            "server": {"name": name},
            "data": {"account_details": [{"stream_detail": [stream(UP), stream("OTHER")]}]},
        }
        for name in ("a", "b")
    ]
    off = {"server": {"name": "c"}, "data": {"disabled": True}}
    assert replicas([*answers, off, {"server": {"name": "d"}}], {UP}) == {
        UP: {"a": Replica(3, 9, 6), "b": Replica(3, 9, 6, leads=True)}
    }
    assert switched_off([*answers, off]) == {"c"}


def test_a_server_whose_clock_is_not_the_others_is_named() -> None:
    def at(name: str, time: str) -> dict[str, Any]:
        return {"server": {"name": name, "time": f"2026-01-01T{time}Z"}}

    others = [at("a", "10:00:00.5"), at("c", "10:00:02")]
    assert clocks_off([*others, at("b", "12:00:02")]) == {"b": 7200.0}
    assert clocks_off([*others, at("b", "08:00:00.5")]) == {"b": -7200.0}
    assert clocks_off([*others, at("b", "10:00:09")]) == {}
    assert clocks_off([at("a", "10:00:00"), at("b", "12:00:00")]) == {}
    assert clocks_off([*others, {"server": {"name": "old"}}]) == {}


def test_servers_with_much_to_tell_are_asked_more_seldom() -> None:
    assert pause_s(0) == pause_s(300_000) == 2
    assert pause_s(40_000_000) == 200
