"""After a source was set up it is told again what that may have passed over: once, and not too soon."""

from __future__ import annotations

import asyncio

from backhaul_hub.links.recent_setups import SETTLED_S, RecentSetups
from tests.support.hub_sync import FakeClock
from tests.support.waiting import until


class Hub:
    """Notes whom it tells again."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.told: list[str] = []
        self.set_ups = RecentSetups(self.clock, self.told.append)

    def look_after(self, seconds: float) -> float | None:
        self.clock.ns += round(seconds * 1e9)
        return self.set_ups.look()


def test_a_device_is_told_again_once_and_when_its_source_stands() -> None:
    hub = Hub()
    hub.set_ups.note("VID-001")
    assert hub.look_after(0) == SETTLED_S
    assert hub.look_after(SETTLED_S - 1) == 1
    assert hub.told == []
    assert hub.look_after(1) is None
    assert hub.look_after(SETTLED_S) is None
    assert hub.told == ["VID-001"]


def test_a_source_that_is_set_up_anew_is_waited_for() -> None:
    hub = Hub()
    hub.set_ups.note("VID-001")
    hub.look_after(1)
    hub.set_ups.note("VID-002")
    hub.look_after(3)
    hub.set_ups.note("VID-001")
    assert hub.look_after(1) == 1
    assert hub.told == []
    assert hub.look_after(1) == 3
    assert hub.told == ["VID-002"]
    assert hub.look_after(3) is None
    assert hub.told == ["VID-002", "VID-001"]


def test_a_device_that_is_gone_is_told_nothing() -> None:
    hub = Hub()
    hub.set_ups.note("VID-001")
    hub.set_ups.drop("VID-001")
    hub.set_ups.drop("VID-002")
    assert hub.look_after(SETTLED_S) is None
    assert hub.told == []


async def test_what_is_noted_later_is_told_as_well() -> None:
    hub = Hub()
    running = asyncio.create_task(hub.set_ups.run())
    hub.set_ups.note("VID-001")
    hub.clock.ns += round(SETTLED_S * 1e9)
    await until(lambda: hub.told == ["VID-001"])
    hub.set_ups.note("VID-002")
    hub.clock.ns += round(SETTLED_S * 1e9)
    await until(lambda: hub.told == ["VID-001", "VID-002"])
    running.cancel()
    await asyncio.wait([running])
