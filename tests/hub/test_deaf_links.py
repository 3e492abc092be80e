"""A link over which no lane is heard is cut, and no other."""

from __future__ import annotations

from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.links.deaf_links import DeafLinks
from backhaul_hub.links.sources import lane_source, push_source

DEVICE = Device("VID-001", "ab12", "", 0)
UP = DeviceLink(up=True, since_ns=1)
NEVER = -1


def listed(lane: str, active: int = NEVER, **extra: object) -> dict[str, object]:
    return lane_source(DEVICE, lane) | {"active": active, "lag": 0} | extra


def test_a_link_over_which_no_lane_was_ever_heard_is_cut_less_and_less_often() -> None:
    deaf = DeafLinks()
    # Pushes pass over such a link.
    sources = [listed("bulk"), listed("live"), push_source(DEVICE, "api") | {"active": 1, "lag": 0}]
    cuts = [at_s for at_s in range(1000) if deaf.look(sources, {DEVICE.id: UP}, at_s)]
    assert cuts == [60, 180, 420, 900]


def test_a_lane_that_is_heard_keeps_the_link_and_one_that_is_set_up_again_has_a_minute() -> None:
    deaf = DeafLinks()
    for at_s in range(0, 600, 10):
        assert deaf.look([listed("bulk", 5), listed("live")], {DEVICE.id: UP}, at_s) == []
    cuts = [at_s for at_s in range(600, 700) if deaf.look([listed("bulk")], {DEVICE.id: UP}, at_s)]
    assert cuts == [650]


def test_what_is_told_of_one_link_is_not_said_of_the_next() -> None:
    deaf, sources = DeafLinks(), [listed("bulk")]
    deaf.look(sources, {DEVICE.id: UP}, 0.0)
    later = {DEVICE.id: DeviceLink(up=True, since_ns=2)}
    assert deaf.look(sources, later, 65.0) == []
    assert deaf.look(sources, {DEVICE.id: DeviceLink(since_ns=3)}, 900.0) == []
    assert deaf.look(sources, {}, 900.0) == []
    assert deaf.look(sources, later, 126.0) == [DEVICE.id]


def test_a_vehicle_that_refuses_answers() -> None:
    deaf = DeafLinks()
    refused = [listed("bulk", error={"description": "stream not found"})]
    deaf.look(refused, {DEVICE.id: UP}, 0.0)
    assert deaf.look(refused, {DEVICE.id: UP}, 500.0) == []
