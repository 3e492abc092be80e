"""Stamps from the hub's future: what is refused, and what the vehicle is told."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Point
from backhaul_codec.wire.addressed import Addressed
from backhaul_hub.continuity.future_stamps import FutureRule, restamps

NOW = 1_800_000_000 * 10**9
RULE = FutureRule(5.0)
SKEW = 5 * 10**9
times = st.integers(-(2**63), 2**63 - 1)


def at(time: int, parent: str = "") -> Addressed:
    return Addressed(parent, Point("battery pack", "limit", time, 80.0, "max.soc"))


@given(time=times, now=times)
def test_only_what_is_further_ahead_than_the_skew_is_refused(time: int, now: int) -> None:
    assert bool(RULE.ahead_ns(time, now)) == (time > now + SKEW)
    assert RULE.too_early([at(time)], now) == ([at(time)] if time > now + SKEW else [])


def test_a_stamp_exactly_at_the_skew_may_be() -> None:
    assert RULE.ahead_ns(NOW + SKEW, NOW) == 0
    assert RULE.ahead_ns(NOW + SKEW + 1, NOW) == 1


def test_the_vehicle_is_told_which_point_and_what_time_it_is() -> None:
    node, edge = restamps("VID-001", [at(NOW + 10**12), at(NOW + 2, "rack")], NOW)
    assert node.subject == "in.VID-001.s.restamp.battery%20pack.limit.max%2Esoc"
    assert edge.subject == "in.VID-001.s.restamp.rack.battery%20pack.limit.max%2Esoc"
    assert json.loads(node.body) == {"time": NOW + 10**12, "now_ns": NOW}
