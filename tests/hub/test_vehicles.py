"""What vehicles say of themselves: taken in, stored, and read back; and what no vehicle says."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.device import DeviceLink
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_lanes, store_read
from backhaul_hub.vehicles.core import Vehicles, restored
from backhaul_hub.vehicles.identities import LASTS_NS, told
from backhaul_hub.vehicles.keeper import VehicleKeeper

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
ONE = b'{"m":"aa","b":"b1","r":"c1","v":"1.0","l":81,"d":99,"c":[["disk-full",""]]}'
OTHER = b'{"m":"bb","b":"b2","r":"c2","v":"1.1"}'


class Time:
    def __init__(self, ns: int) -> None:
        self._ns = ns

    def now_ns(self) -> int:
        return self._ns

    def monotonic_s(self) -> float:
        return self._ns / S


async def test_what_a_vehicle_said_is_known_after_a_restart(tmp_path: Path) -> None:
    clock, links = Time(7 * S), {"VID-001": DeviceLink(address="10.0.0.1")}
    async with await Registry.open(tmp_path / "hub.db") as registry:
        keeper = await VehicleKeeper.open(registry, clock, links, Continuity())
        keeper.hear("VID-001", ONE)
        keeper.hear("VID-002", OTHER)
        keeper.hear("VID-003", b"")
        keeper.vehicles.identities.forked("VID-004", "seq 7", clock.now_ns())
        await keeper.store()
        again = await restored(registry)
    assert again.told == keeper.vehicles.told
    assert set(again.told) == {"VID-001", "VID-002"}
    assert again.told["VID-001"].report.conditions == (("disk-full", ""),)
    for device in ("VID-001", "VID-002", "VID-003", "VID-004"):
        assert again.identities.of(device) == keeper.vehicles.identities.of(device)
    (seen,) = again.identities.of("VID-001").seen
    assert (seen.machine, seen.address, seen.first_ns) == ("aa", "10.0.0.1", clock.now_ns())
    assert again.identities.judged("VID-004", clock.now_ns())
    assert set(keeper.vehicles.heard_ns) == {"VID-001", "VID-002", "VID-003"}


@pytest.mark.parametrize("report", [b"17", b"{}", b"null", b'{"m":"../x","b":"","r":"","v":""}'])
def test_what_is_no_report_leaves_the_last_one(report: bytes) -> None:
    vehicles = Vehicles()
    vehicles.hear("VID-001", ONE, "", 1)
    vehicles.hear("VID-001", report, "", 2)
    assert vehicles.told["VID-001"].told_ns == 1
    assert (vehicles.heard_ns["VID-001"], vehicles.unreadable) == (2, 1)


async def test_what_hub_db_refuses_is_stored_later(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        keeper = await VehicleKeeper.open(registry, Time(1), {}, Continuity())
        keeper.hear("VID-001", ONE)
        with sqlite3.connect(tmp_path / "hub.db") as other:
            other.execute("ALTER TABLE vehicle RENAME TO away")
            await keeper.store()
            other.execute("ALTER TABLE away RENAME TO vehicle")
        other.close()
        await keeper.store()
        assert set((await restored(registry)).told) == {"VID-001"}


async def test_what_is_new_is_stored_at_the_end(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        keeper = await VehicleKeeper.open(registry, Time(1), {}, Continuity())
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(0)
        keeper.hear("VID-001", ONE)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert set((await restored(registry)).told) == {"VID-001"}


async def test_a_row_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        keeper = await VehicleKeeper.open(registry, Time(1), {}, Continuity())
        keeper.hear("VID-001", ONE)
        await keeper.store()
        put = "INSERT INTO vehicle VALUES (?, 1, ?, ?)"
        await registry.write([RowChange(put, [("VID-000", "{", "{}"), ("VID-002", "", "[")])])
        assert set((await restored(registry)).told) == {"VID-001"}


@pytest.mark.parametrize("two", [False, True])
async def test_a_fork_is_told_of_with_its_machines_until_it_is_long_over(
    tmp_path: Path, *, two: bool
) -> None:
    clock, links = Time(100 * LASTS_NS), {"VID-007": DeviceLink(address="10.0.0.1")}
    key = LaneKey("VID-007", "bulk", 9)
    continuity = Continuity()
    async with await Registry.open(tmp_path / "hub.db") as registry:
        keeper = await VehicleKeeper.open(registry, clock, links, continuity)
        keeper.hear("VID-007", ONE)
        if two:
            links["VID-007"] = DeviceLink(address="10.0.0.2")
            keeper.hear("VID-007", OTHER)
        keeper.note_forks()
        began_ns = clock.now_ns()
        for seq, own in ((1, b"a" * 6), (2, b"b" * 6), (2, b"x" * 6)):
            continuity.arrived(key, seq, 10, began_ns, own=own)
        keeper.note_forks()
        found = keeper.vehicles.identities.judged("VID-007", began_ns)
        assert found is not None
        assert found.two
        text = told("VID-007", found)
        assert "two machines use the identity of VID-007" in text
        assert "lane bulk, epoch 9, from seq 1 on" in text
        assert "machine aa, started as b1, at 10.0.0.1" in text
        assert ("machine bb, started as b2, at 10.0.0.2" in text) is two
        assert ("put back from a copy" in text) is not two
        await keeper.store()
        keeper.note_forks()
        assert not keeper.vehicles.take_changes(), "nothing new, and written again"
        # A hub that ends before it has stored what it found, finds it again.
        await store_read(registry, "UP_00", ReadPosition(), continuity.take_changed())
        again = Continuity()
        again.restore(await read_lanes(registry))
        other = VehicleKeeper(Vehicles(), registry, clock, links, again)
        other.note_forks()
        assert other.vehicles.identities.judged("VID-007", began_ns)
        assert other.vehicles.identities.judged("VID-007", began_ns + LASTS_NS) is None
        late = Time(began_ns + LASTS_NS)
        other = VehicleKeeper(Vehicles(), registry, late, links, again)
        other.note_forks()
        assert other.vehicles.identities.of("VID-007").evidence is None
