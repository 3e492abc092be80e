"""Who is connected, where leafs logged in unheard and say of themselves what they like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.rules import clock_answer_subject
from backhaul_hub.links.leaf_connections import Leafs
from backhaul_hub.nats import system_requests
from backhaul_runtime.clock import SystemClock
from tests.support.fleet_identities import Fleet
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from backhaul_hub.links.leaf_connections import Carried

pytestmark = pytest.mark.nats
KNOWN, NAMELESS, LATER = "VID-001", "VID-002", "VID-003"


async def test_a_leaf_is_counted_by_its_login_and_cut_where_nobody_knows_it(
    tmp_path: Path,
) -> None:
    async with Fleet.running(tmp_path) as fleet:
        for device in (KNOWN, NAMELESS, LATER):
            await fleet.enrol(device)
        assert await fleet.connect(KNOWN, NAMELESS) == []
        honest = fleet.links[KNOWN].claims["name"]
        carried: dict[str, Mapping[object, Carried]] = {}
        async with fleet.rig.connection("system") as system:
            leafs = Leafs(
                system,
                fleet.keys.account("FLEET").public,
                SystemClock(),
                lambda name: KNOWN if name == honest else None,
                lambda device: None,
                lambda device: None,
                carried=carried.__setitem__,
            )
            await leafs.start()
            await fleet.links[NAMELESS].closed.wait()
            assert carried.keys() == {KNOWN}
            # Its login is heard now, so that it counts whatever it says.
            assert await fleet.connect(NAMELESS, LATER) == []
            while not {NAMELESS, LATER} <= leafs.links.keys():
                assert await fleet.cut_off() == []
            await leafs.refresh()
            assert carried.keys() == {KNOWN, NAMELESS, LATER}
            assert await fleet.cut_off() == []


async def test_a_start_does_not_wait_for_a_server_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_requests, "_WAIT_S", 3600.0)
    async with Fleet.running(tmp_path) as fleet:
        await fleet.enrol(KNOWN)
        assert await fleet.connect(KNOWN) == []
        async with fleet.rig.connection("system") as system:
            leafs = Leafs(
                system,
                fleet.keys.account("FLEET").public,
                SystemClock(),
                lambda name: KNOWN,
                lambda device: None,
                lambda device: None,
                servers=2,
            )
            async with asyncio.timeout(120):
                await leafs.start()
            assert leafs.links[KNOWN].up


async def test_a_leaf_can_be_asked_once_its_server_counts_what_it_listens_to(
    tmp_path: Path,
) -> None:
    async with Fleet.running(tmp_path) as fleet:
        await fleet.enrol(KNOWN)
        told: list[str] = []
        async with fleet.rig.connection("system") as system:
            leafs = Leafs(
                system,
                fleet.keys.account("FLEET").public,
                SystemClock(),
                lambda _: KNOWN,
                lambda device: told.append("up"),
                lambda device: told.append("down"),
                on_listening=lambda device: told.append("listens"),
            )
            await leafs.start()
            assert await fleet.connect(KNOWN) == []
            await until(lambda: told == ["up"], "its login is heard")
            await leafs._look_at_new()
            assert told == ["up"]
            device = fleet.devices[KNOWN]
            await fleet.links[KNOWN].listen(clock_answer_subject(KNOWN, device.token))
            watch = asyncio.create_task(leafs.watch_new())
            await until(lambda: told == ["up", "listens"], "what it listens to is counted")
            watch.cancel()
            await asyncio.wait([watch])
