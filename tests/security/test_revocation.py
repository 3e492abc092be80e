"""Revoking one vehicle of a fleet: it is cut and stays out, and no other notices anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.fleet_identities import Fleet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats
NAMES = [f"VID-{number:03}" for number in range(40)]
BAD = NAMES[17]


async def test_a_revoked_vehicle_is_the_only_one_cut_and_stays_out(tmp_path: Path) -> None:
    async with Fleet.running(tmp_path) as fleet:
        for name in NAMES:
            await fleet.enrol(name)
        assert await fleet.connect(*NAMES) == []
        async with fleet.rig.connection("system") as system:
            await fleet.revoke(BAD, system)
            assert await fleet.cut_off() == [BAD]
        await fleet.restart()
        assert set(await fleet.connect(*NAMES)) <= {BAD}
        # A server that has just started may let it in until it has read the account to its end.
        async with asyncio.timeout(120):
            await fleet.links[BAD].closed.wait()
        assert await fleet.cut_off() == [BAD], "after a restart"
        async with fleet.rig.connection("system") as system:
            await fleet.enrol("VID-NEW", nodes=("battery",))
            assert "FLEET" in await fleet.keeper.push(system)
            assert await fleet.connect(BAD) == [BAD], "after a later account update"
            assert await fleet.connect("VID-NEW") == []
        assert await fleet.cut_off() == [BAD]
