"""Which updates bring a stream's sources in line with who is connected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_hub.device import Device
from backhaul_hub.links.sources import (
    SETUP_S,
    OwedWatch,
    Place,
    SourcePlan,
    SourceWatch,
    lane_source,
    link_idle_s,
    owes_greeting,
    place_of,
    places_of,
    push_source,
    sources_by_shard,
    untouched_s,
)

ONE, TWO, THREE = (Place(f"VID-00{number}", "bulk") for number in (1, 2, 3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connected"), st.sampled_from([ONE, TWO, THREE])),
        st.tuples(st.just("disconnected"), st.sampled_from([ONE, TWO, THREE])),
        st.tuples(st.sampled_from(["succeeded", "failed"]), st.just(ONE)),
    ),
    max_size=30,
)


def drain(plan: SourcePlan, now_s: float = 0.0) -> list[frozenset[Place]]:
    updates = []
    while (target := plan.next_update(now_s)) is not None:
        plan.succeeded(target, now_s)
        for place in target:
            plan.established(place, now_s, now_s + 1)
        updates.append(target)
        assert len(updates) < 10, "does not come to rest"
    return updates


def test_a_new_device_is_one_update() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    assert drain(plan) == [frozenset({ONE})]
    assert drain(plan) == []


def test_a_device_that_connects_again_is_taken_out_and_put_back() -> None:
    plan = SourcePlan()
    plan.succeeded(frozenset({ONE, TWO}), -100.0)
    plan.established(ONE, -1.0, 1.0)
    plan.wanted = {ONE, TWO}
    plan.connected(ONE)
    assert drain(plan) == [frozenset({TWO}), frozenset({ONE, TWO})]


def test_a_device_that_leaves_is_taken_out() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    drain(plan)
    plan.disconnected(ONE)
    assert drain(plan) == [frozenset()]


def test_a_failed_kick_is_done_again() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    drain(plan)
    plan.connected(ONE)
    assert plan.next_update(0.0) == frozenset()
    plan.failed()
    assert drain(plan) == [frozenset(), frozenset({ONE})]


def test_a_source_whose_set_up_may_be_under_way_is_removed_and_added_later() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    assert plan.next_update(0.0) == frozenset({ONE})
    plan.succeeded(frozenset({ONE}), 0.0)
    plan.kicked(ONE)
    assert plan.next_update(20.0) == frozenset(), (
        "however long ago: the server asks again by itself"
    )
    plan.succeeded(frozenset(), 20.0)
    plan.connected(TWO)
    assert plan.next_update(21.0) == frozenset({TWO}), "others are not held up"
    plan.succeeded(frozenset({TWO}), 21.0)
    assert plan.next_update(21.0) is None
    assert plan.look_again_s() == 20.0 + SETUP_S
    assert plan.next_update(20.0 + SETUP_S) == frozenset({ONE, TWO})


def test_a_device_that_is_there_again_is_left_to_the_server_where_it_may_be_at_it() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    plan.succeeded(frozenset({ONE}), 0.0)
    plan.connected(ONE)
    assert plan.next_update(1.0) is None
    plan.established(ONE, 1.0, 9.0)
    assert plan.next_update(2.0) is None, "it was established since"


def test_a_device_that_left_during_its_set_up_is_added_again_only_after_it() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    plan.succeeded(frozenset({ONE}), 0.0)
    plan.disconnected(ONE)
    assert plan.next_update(1.0) == frozenset()
    plan.succeeded(frozenset(), 1.0)
    assert plan.look_again_s() is None
    plan.connected(ONE)
    assert plan.next_update(2.0) is None
    assert plan.next_update(1.0 + SETUP_S) == frozenset({ONE})


@pytest.mark.parametrize(
    ("asked_s", "until_s", "at_once"),
    [(-1.0, 5.0, False), (1.0, 1.5, False), (1.0, 3.0, True)],
    ids=["of an earlier source", "long ago", "known"],
)
def test_a_source_is_renewed_at_once_where_no_set_up_can_be_under_way(
    asked_s: float, until_s: float, *, at_once: bool
) -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    plan.succeeded(frozenset({ONE}), 0.0)
    plan.established(ONE, asked_s, until_s)
    plan.kicked(ONE)
    plan.succeeded(frozenset(), 2.0)
    assert plan.next_update(2.0) == (frozenset({ONE}) if at_once else None)


def test_what_was_known_of_a_source_is_doubted_where_its_server_has_started() -> None:
    plan = SourcePlan()
    plan.connected(ONE)
    plan.succeeded(frozenset({ONE}), 0.0)
    plan.established(ONE, 1.0, 9.0)
    plan.doubted(ONE)
    plan.connected(ONE)
    plan.succeeded(frozenset(), 2.0)
    assert plan.next_update(2.0) is None


@pytest.mark.parametrize(
    ("source", "kicked", "known_s"),
    [
        ({"active": 2_000_000_000}, False, 7.0),
        ({"active": 20_000_000_000}, False, -11.0),
        ({"active": 2_000_000_000}, True, -1.0),
        ({"active": -1}, False, -1.0),
        ({"active": -1, "error": {"description": "consumer not found"}}, True, 1.0),
        ({"active": -1, "error": {"description": "stalled on flow control"}}, False, -1.0),
    ],
    ids=["heard", "silent", "kicked", "never heard", "refused", "waits for its link"],
)
def test_what_a_source_says_of_its_set_up(
    source: dict[str, Any], known_s: float, *, kicked: bool
) -> None:
    assert untouched_s(source, kicked=kicked) == known_s


@given(STEPS)
def test_comes_to_rest_at_what_is_wanted_and_kicks_every_reconnect(
    steps: list[tuple[str, Place]],
) -> None:
    plan = SourcePlan()
    connected: set[Place] = set()
    # Devices whose source was set up (added) after their last connect.
    fresh: set[Place] = set()
    in_flight: frozenset[Place] | None = None
    begun_after: set[Place] = set()

    def land() -> None:
        nonlocal in_flight
        assert in_flight is not None
        added = in_flight - plan.applied
        fresh.update(added & begun_after)
        fresh.intersection_update(in_flight)
        plan.succeeded(in_flight, 0.0)
        for device in in_flight:
            plan.established(device, 0.0, 1.0)
        in_flight = None

    for what, device in [*steps, ("rest", ONE)]:
        if what == "connected":
            plan.connected(device)
            connected.add(device)
            fresh.discard(device)
            begun_after.discard(device)
        elif what == "disconnected":
            plan.disconnected(device)
            connected.discard(device)
        elif what == "failed" and in_flight is not None:
            plan.failed()
            in_flight = None
        elif what == "succeeded" and in_flight is not None:
            land()
        if in_flight is None:
            in_flight = plan.next_update(0.0)
            begun_after = set(connected)
    while in_flight is not None:
        land()
        in_flight = plan.next_update(0.0)
        begun_after = set(connected)
    assert plan.applied == connected
    assert fresh >= connected


def test_a_source_names_its_device_in_prefix_api_and_deliver_subject() -> None:
    source = lane_source(Device("VID-001", "ab12", "", 0), "bulk")
    assert source["subject_transforms"] == [{"src": ">", "dest": "up.VID-001.>"}]
    assert source["consumer"] == {"name": "ab12", "deliver_subject": "dlv.VID-001.ab12_bulk"}
    assert place_of(source) == ("VID-001", "bulk")


def test_every_lane_of_a_device_is_a_source_and_its_nodes_have_their_own() -> None:
    device = Device("VID-001", "ab12", "", 0, nodes=("motor rear",), leaving=("gps",))
    places = places_of(device)
    assert [place.lane for place in places] == ["live", "bulk", "n_motor%20rear", "n_gps"]
    assert [place_of(lane_source(device, place.lane)) for place in places] == places
    source = lane_source(device, "n_motor%20rear")
    assert source["name"] == "OUT_n_motor%20rear"
    assert source["consumer"]["deliver_subject"] == "dlv.VID-001.ab12_n_motor%20rear"


def test_a_shard_is_as_full_as_it_has_sources_not_devices() -> None:
    many = tuple(f"node{number}" for number in range(30))
    devices = [Device("VID-001", "ab", "", 0, nodes=many), Device("VID-002", "cd", "", 0)]
    assert sources_by_shard(devices, 1) == {0: 34}


def test_a_lane_is_set_up_again_alone() -> None:
    live, bulk = Place("VID-001", "live"), Place("VID-001", "bulk")
    plan = SourcePlan()
    plan.connected(live, bulk)
    assert drain(plan) == [frozenset({live, bulk})]
    plan.connected(bulk)
    assert drain(plan) == [frozenset({live}), frozenset({live, bulk})]


def listed(
    active_s: float, error: str | None = None, *, lane: str = "bulk", lag: int = 0, seq: int = 0
) -> dict[str, Any]:
    source: dict[str, Any] = lane_source(Device("VID-001", "ab12", "", 0), lane)
    source |= {"active": int(active_s * 1e9) if active_s >= 0 else -1, "lag": lag, "seq": seq}
    return source | ({"error": {"description": error}} if error else {})


def test_a_source_that_hears_its_device_is_left_alone() -> None:
    watch = SourceWatch(15.0, 10.0)
    assert [watch.complaint(listed(0.5), 100.0 + now, now) for now in range(60)] == [None] * 60


def test_a_refused_source_is_kicked_soon_then_less_often() -> None:
    watch = SourceWatch(15.0, 10.0)
    kicks = [now for now in range(60) if watch.complaint(listed(-1, "no stream"), now, now)]
    assert kicks == [1, 3, 7, 15, 30, 45]


def test_a_source_whose_window_takes_long_to_arrive_is_left_alone() -> None:
    """Servers from 2.15 on report it as an error, on every slow link."""
    watch = SourceWatch(15.0, 10.0)
    said = "stream source consumer stalled on flow control"
    for now in range(100):
        assert watch.complaint(listed(1, said, lag=50, seq=now // 5), now, now) is None


def test_a_source_that_never_heard_its_device_is_kicked_once_the_server_has_asked_twice() -> None:
    watch = SourceWatch(15.0, 10.0)
    kicks = [now for now in range(40) if watch.complaint(listed(-1), now, now)]
    assert kicks == [11, 33]


def test_a_source_that_was_kicked_for_another_reason_is_given_as_long() -> None:
    watch = SourceWatch(15.0, 10.0)
    watch.kicked(ONE, 20.0)
    kicks = [now for now in range(20, 40) if watch.complaint(listed(-1), now, now)]
    assert kicks == [31]


def test_a_silent_source_is_kicked_once_patience_is_over() -> None:
    """Lag 0 is no proof: a source can be stalled while the server calls it healthy."""
    watch = SourceWatch(15.0, 10.0)
    kicks = [now for now in range(50) if watch.complaint(listed(float(now)), now, now)]
    assert kicks == [15, 30, 45]


def test_a_link_that_may_be_dead_is_left_to_the_servers_pings() -> None:
    """A set-up over a half-open link is lost, and keeps the one from succeeding that comes after it."""
    watch = SourceWatch(15.0, 10.0)
    silent = [listed(float(now), lag=93, seq=7) for now in range(60)]
    kicks = [now for now in range(60) if watch.complaint(silent[now], 99.0, now, float(now))]
    assert kicks == [40, 55]


def test_one_silent_lane_of_a_link_that_is_heard_is_kicked() -> None:
    sources = [listed(20.0), listed(0.5, lane="live"), listed(-1, lane="other")]
    assert link_idle_s(sources) == {"VID-001": 0.5}
    assert SourceWatch(15.0, 10.0).complaint(sources[0], 99.0, 100.0, 0.5)
    assert link_idle_s([listed(-1)]) == {}


def test_a_link_that_came_up_owes_a_word_for_a_while() -> None:
    second_ns = 1_000_000_000
    assert owes_greeting(99 * second_ns, 100 * second_ns, 101 * second_ns)
    assert not owes_greeting(100 * second_ns, 100 * second_ns, 101 * second_ns)
    assert not owes_greeting(99 * second_ns, 100 * second_ns, 220 * second_ns)


def test_a_source_that_lags_and_takes_nothing_is_kicked_though_it_hears_heartbeats() -> None:
    watch = SourceWatch(15.0, 10.0)
    kicks = [now for now in range(35) if watch.complaint(listed(0.5, lag=93, seq=7), 99.0, now)]
    assert kicks == [10, 20, 30]


def test_a_source_that_lags_and_gets_on_is_left_alone() -> None:
    watch = SourceWatch(15.0, 10.0)
    for now in range(60):
        assert watch.complaint(listed(0.5, lag=93, seq=now // 9), 99.0, now) is None


def test_a_healthy_lane_does_not_make_its_deaf_twin_impatient() -> None:
    watch = SourceWatch(15.0, 10.0)
    kicks = []
    for now in range(20):
        assert watch.complaint(listed(0.5, lane="live"), now, now) is None
        if watch.complaint(listed(-1), now, now):
            kicks.append(now)
    assert kicks == [11]


def test_no_kick_within_patience_of_a_new_link() -> None:
    watch = SourceWatch(15.0, 10.0)
    assert watch.complaint(listed(3600.0), 2.0, 5000.0) is None


def test_a_source_that_reports_no_lag_is_not_believed_where_the_vehicle_has_more() -> None:
    """A recording of 3,108 messages stood at the fourth, at lag 0, after its link was cut."""
    watch, place = OwedWatch(patience_s=10.0), ONE
    assert watch.complaint(place, 4, 0.0) is None
    assert watch.complaint(place, 4, 9.9) is None
    assert watch.complaint(place, 4, 10.0)
    assert watch.complaint(place, 4, 20.0) is None  # less often
    assert watch.complaint(place, 4, 30.0)
    assert watch.complaint(place, 5, 31.0) is None
    assert watch.complaint(place, None, 40.0) is None
    assert watch.complaint(place, 5, 50.0) is None


def test_a_source_of_pushes_that_hears_nothing_is_set_up_again_soon_whatever_the_link_does() -> (
    None
):
    """PUSH may have another leader: left alone, the server looks after ten seconds."""
    watch = SourceWatch(15.0, 10.0)
    source = push_source(Device("VID-001", "ab", "", 0), "x") | {"lag": 0}
    assert watch.complaint(source | {"active": 2_900_000_000}, 99.0, 100.0, 20.0) is None
    silent = source | {"active": 3_100_000_000}
    assert watch.complaint(silent, 99.0, 100.0, 20.0) == "hears nothing of PUSH"
    new = source | {"active": -1}
    assert watch.complaint(new, 99.0, 102.0, 20.0) is None
    assert watch.complaint(new, 99.0, 103.0, 20.0) == "hears nothing of PUSH"
