"""What a source says of its lag is not believed where the vehicle has said that it has more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from backhaul_hub.config import load
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.links.source_keeper import KICKED_MAX, SourceKeeper
from backhaul_hub.links.sources import lane_source
from backhaul_hub.setup.hub_directory import create_hub
from tests.support.hub_layout import local_layout
from tests.support.hub_sync import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.nats.jetstream import Json

BULK = LaneKey("VID-001", "bulk", 7)
DEVICE = Device(BULK.device, "ab", "", 0)


def at_lag_0(*, active: int) -> Json:
    """Return an UP stream whose source has nothing left to take, and when it heard its device, in ns."""
    source = lane_source(DEVICE, BULK.lane)
    listed = source | {"active": active, "lag": 0, "seq": 4}
    return {"created": "t", "config": {"sources": [source]}, "sources": [listed]}


class Watched:
    """A source at lag 0 of a device whose link is up, and who keeps it."""

    def __init__(self, directory: Path) -> None:
        create_hub(directory, local_layout(4222, 7422))
        self.clock, self.continuity = FakeClock(), Continuity()
        self.link = DeviceLink(up=True, since_ns=self.clock.now_ns())
        self.keeper = SourceKeeper(
            load(directory), self.clock, self.continuity, lambda: {DEVICE.id: DEVICE}
        )
        self.keeper.connected(DEVICE.id)

    def kicks(self, seconds: int = 15, *, active: int = 500_000_000) -> list[str]:
        """Look so long; return why the source was set up again."""
        with capture_logs() as logs:
            for _ in range(seconds):
                self.clock.ns += 1_000_000_000
                links = {DEVICE.id: self.link}
                self.keeper.look([at_lag_0(active=active)], self.clock.monotonic_s(), links)
        return [each["why"] for each in logs if each["event"] == "source_kicked"]


def test_a_source_that_stands_still_at_lag_0_is_set_up_again(tmp_path: Path) -> None:
    it = Watched(tmp_path / "hub")
    it.continuity.arrived(BULK, 4, 10, it.clock.now_ns())
    assert it.kicks() == ["the vehicle has more, and nothing comes"]
    for seq in (1, 2, 3):
        it.continuity.arrived(BULK, seq, 10, it.clock.now_ns())
    assert it.kicks() == []


def test_a_source_that_was_set_up_again_is_given_time_to_hear_its_device(tmp_path: Path) -> None:
    it = Watched(tmp_path / "hub")
    it.continuity.arrived(BULK, 4, 10, it.clock.now_ns())
    while not it.kicks(1):
        pass
    assert it.kicks(10, active=-1) == []
    assert it.kicks(1, active=-1) == ["never heard its device"]


@pytest.mark.parametrize("former", ["ended", "goes on", "none"])
def test_what_a_vehicle_says_of_an_epoch_that_was_never_heard_counts(
    tmp_path: Path, former: str
) -> None:
    it = Watched(tmp_path / "hub")
    if former != "none":
        it.continuity.arrived(BULK, 1, 10, it.clock.now_ns())
    if former == "ended":
        it.continuity.end(BULK.device, BULK.epoch)
    assert it.kicks() == []
    now = BULK._replace(epoch=8)
    it.keeper.stands_still(now, 2)
    assert it.kicks() == ["the vehicle has more, and nothing comes"]
    for seq in (1, 2):
        it.continuity.arrived(now, seq, 10, it.clock.now_ns())
    assert it.kicks() == []


def test_nothing_is_owed_of_a_ledger_that_is_no_more(tmp_path: Path) -> None:
    it = Watched(tmp_path / "hub")
    it.keeper.stands_still(BULK, 2)
    it.continuity.end(BULK.device, BULK.epoch)
    assert it.kicks() == []


def test_a_source_that_brings_what_a_former_ledger_had_works(tmp_path: Path) -> None:
    """A slow link carries those messages first, and a vehicle that starts without the hub has a new epoch each time."""
    it = Watched(tmp_path / "hub")
    former = BULK._replace(epoch=6)
    it.continuity.arrived(former, 1, 10, it.clock.now_ns())
    it.continuity.end(BULK.device, former.epoch)
    it.continuity.arrived(BULK, 4, 10, it.clock.now_ns())
    for _ in range(30):
        it.continuity.arrived(former, 1, 10, it.clock.now_ns())
        assert it.kicks(1) == []
    assert it.kicks() == ["the vehicle has more, and nothing comes"]


def test_nothing_is_expected_of_a_source_before_it_heard_its_device(tmp_path: Path) -> None:
    """Over 20 kbit/s the server's first question is lost, and the answer to the second comes after 8 s."""
    it = Watched(tmp_path / "hub")
    it.continuity.arrived(BULK, 4, 10, it.clock.now_ns())
    assert it.kicks(9, active=-1) == []
    assert it.kicks(9) == []
    assert it.kicks() == ["the vehicle has more, and nothing comes"]


def test_sources_that_hear_nothing_by_the_hundred_are_not_all_set_up_again(tmp_path: Path) -> None:
    """As where a whole fleet dials a server that has just started: set-ups are what it is busy with."""
    create_hub(tmp_path / "hub", local_layout(4222, 7422))
    clock = FakeClock()
    devices = {each: Device(each, "ab", "", 0) for each in map("VID-{:03d}".format, range(200))}
    keeper = SourceKeeper(load(tmp_path / "hub"), clock, Continuity(), lambda: devices)
    links = {each: DeviceLink(up=True, since_ns=clock.now_ns()) for each in devices}
    for each in devices:
        keeper.connected(each)
    sources = [lane_source(each, BULK.lane) for each in devices.values()]
    listed = [each | {"active": -1, "lag": 0} for each in sources]
    shard: Json = {"created": "t", "config": {"sources": sources}, "sources": listed}
    kicked: list[str] = []
    for _ in range(30):
        clock.ns += 5_000_000_000
        with capture_logs() as logs:
            keeper.look([shard], clock.monotonic_s(), links)
        now = [each["device"] for each in logs if each["event"] == "source_kicked"]
        assert len(now) <= KICKED_MAX
        kicked += now
    assert len(set(kicked)) > KICKED_MAX, "the others get their turn"
