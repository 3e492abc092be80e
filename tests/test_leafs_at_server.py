"""The rig that holds many vehicles' leaf links in few servers: it works, and counts the bytes of the links."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from backhaul_codec.kinds import BULK
from backhaul_runtime.clock import SystemClock
from tests.support.leafs.arrivals import Arrivals
from tests.support.leafs.farm import enrol, farm_of, name_leafs
from tests.support.leafs.stand_in import speaking
from tests.support.leafs.tcp_bytes import tcp_bytes
from tests.support.rig.parts import HubRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats

LINKS = 5
TIMEOUT_S = 120.0


async def test_one_server_holds_the_links_of_several_vehicles(tmp_path: Path) -> None:
    hub = HubRig(tmp_path / "hub")
    await hub.init()
    name_leafs(hub)
    vehicles = await enrol(hub, [f"VID-{number:05d}" for number in range(LINKS)], tmp_path / "veh")
    await hub.start()
    try:
        async with (
            hub.connection() as client,
            farm_of(vehicles, LINKS, tmp_path) as farm,
            speaking(farm, SystemClock()) as speakers,
        ):
            arrivals = Arrivals(client, shards=1)
            await arrivals.until(
                hub, LINKS, BULK, TIMEOUT_S
            )  # sourced, from its stream at the leaf
            await until(lambda: all(each.pushed for each in speakers.all))
            before, bytes_ = arrivals.messages, await tcp_bytes(hub.leaf_port)
            for each in speakers.all:
                await each.reading()

            async def all_came() -> bool:
                await arrivals.look()
                return arrivals.messages >= before + LINKS

            await until(all_came)
            carried = (await tcp_bytes(hub.leaf_port)).since(bytes_)
            assert carried.connections == LINKS
            assert carried.received > LINKS * 40

            await hub.control.stop(signal.SIGKILL)
            seen = hub.control.logged_bytes
            await hub.start_control()
            log = hub.control.logged(seen)
            assert log.count(b'"leaf_connected"') == LINKS, "it knows whose each is"
            assert b"nameless_leaf_cut" not in log
            assert speakers.broken == []
    finally:
        await hub.stop()
