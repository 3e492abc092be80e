"""Which lanes a vehicle may push, by what the hub holds and sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub.device import Device
from backhaul_hub.links.pushes import Pushes, Pushing
from backhaul_hub.links.sources import (
    PUSHED,
    Place,
    SourcePlan,
    link_idle_s,
    place_of,
    places_of,
    push_source,
    sourced,
)

if TYPE_CHECKING:
    from backhaul_hub.continuity.lane_key import LaneKey

DEVICE = Device("VID-001", "ab", "", 0)
BULK, LIVE, PUSH = (Place(DEVICE.id, lane) for lane in ("bulk", "live", PUSHED))
LANES = {"bulk": 5, "live": 0}


class Hub:
    """A hub whose vehicle is connected and sourced; it holds both lanes up to `held`."""

    def __init__(self, *, connected: bool = True) -> None:
        self.held = 5
        self.epoch = 7
        self.pushes = Pushes(self._holds)
        self.plan = SourcePlan()
        if connected:
            self.plan.connected(BULK, LIVE)
        self.apply()

    def _holds(self, key: LaneKey, seq: int) -> bool:
        return key.epoch == self.epoch and seq <= self.held

    def apply(self, active: int = 0) -> None:
        while (target := self.plan.next_update(10.0)) is not None:
            self.plan.succeeded(target, 10.0)
        if PUSH in self.plan.applied:
            self.pushes.heard(DEVICE.id, push_source(DEVICE, "x") | {"active": active})

    def ask(self, lanes: dict[str, int], epoch: int = 7) -> list[str]:
        change = self.pushes.ask(Pushing(DEVICE.id, epoch, lanes), places_of(DEVICE), self.plan)
        self.plan.disconnected(*change.asleep)
        self.plan.connected(*change.awake)
        return self.pushes.lanes(DEVICE.id)


def test_the_pushes_are_sourced_first_and_heard_before_a_lane_sleeps() -> None:
    hub = Hub()
    assert hub.ask(LANES) == []
    assert hub.plan.wanted == {BULK, LIVE, PUSH}
    assert hub.ask(LANES) == [], "not before the server says that the source of the pushes works"
    hub.apply(active=-1)
    assert hub.ask(LANES) == []
    hub.apply(active=500_000_000)
    assert hub.ask(LANES) == ["bulk", "live"]
    assert hub.plan.wanted == {PUSH}


@pytest.mark.parametrize(("held", "epoch"), [(4, 7), (5, 8)])
def test_a_lane_of_which_the_hub_lacks_anything_stays_sourced(held: int, epoch: int) -> None:
    hub = Hub()
    hub.held, hub.epoch = held, epoch
    hub.ask(LANES)
    hub.apply()
    assert hub.ask({"bulk": 5}) == []
    assert hub.plan.wanted == {BULK, LIVE, PUSH}


def test_a_lane_that_is_not_named_any_more_is_sourced_again() -> None:
    hub = Hub()
    hub.ask(LANES)
    hub.apply()
    assert hub.ask(LANES) == ["bulk", "live"]
    assert hub.ask({"live": 0}) == ["live"]
    assert hub.plan.wanted == {BULK, PUSH}
    assert hub.ask({}) == []
    assert hub.plan.wanted == {BULK, LIVE, PUSH}


@pytest.mark.parametrize(("after", "epoch"), [(9, 7), (3, 8)])
def test_a_lane_that_is_asked_for_anew_is_sourced_until_the_hub_has_what_was_not_pushed(
    after: int, epoch: int
) -> None:
    """The word between the two was lost, by which the lane was to be sourced."""
    hub = Hub()
    hub.ask(LANES)
    hub.apply()
    assert hub.ask(LANES) == ["bulk", "live"]
    assert hub.ask({"bulk": after, "live": 0}, epoch) != ["bulk", "live"]
    assert BULK in hub.plan.wanted
    hub.held, hub.epoch = 9, epoch
    assert hub.ask({"bulk": after, "live": 0}, epoch) == ["bulk", "live"]


def test_who_never_pushed_leaves_no_record_by_saying_so() -> None:
    hub = Hub()
    assert hub.ask({}, epoch=0) == []
    assert hub.pushes._pushers == {}
    assert hub.plan.wanted == {BULK, LIVE}


def test_who_would_push_has_its_pushes_sourced_before_a_lane_is_calm() -> None:
    """Its newest values go beside the stream as soon as the link is up."""
    hub = Hub()
    assert hub.ask({}) == []
    assert hub.plan.wanted == {BULK, LIVE, PUSH}
    hub.apply()
    assert hub.ask({}) == []
    assert hub.plan.wanted == {BULK, LIVE, PUSH}


def test_a_lane_that_stands_still_is_sourced_again() -> None:
    hub = Hub()
    hub.ask(LANES)
    hub.apply()
    hub.ask(LANES)
    assert hub.pushes.wake(BULK) == BULK
    assert hub.pushes.wake(BULK) is None
    assert hub.pushes.lanes(DEVICE.id) == ["live"]


def test_with_its_link_a_device_loses_its_leave_and_one_without_gets_none() -> None:
    hub = Hub()
    hub.ask(LANES)
    hub.apply()
    hub.ask(LANES)
    hub.pushes.gone(DEVICE.id)
    assert hub.pushes.lanes(DEVICE.id) == []
    away = Hub(connected=False)
    assert away.ask(LANES) == []
    assert away.plan.wanted == set()


def test_a_source_of_pushes_is_known_again_and_says_nothing_of_the_link() -> None:
    source = push_source(DEVICE, "secret")
    assert place_of(source) == PUSH
    assert sourced({"config": {"sources": [source]}}) == {PUSH}
    assert link_idle_s([source | {"active": 3}]) == {}
