"""A hub of three servers is upgraded under load: the servers one by one, then the control plane, as docs/cluster.md says.

Real servers, real vehicles. The control plane is one of before at first, out of this repository's own history (a clone
that is shallow takes today's); all servers are of one version, since there is one to install. A server is stopped in
order: by `ldm` it would let its clients go over two minutes.
"""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import Cluster, running
from tests.integration.conditions import until_shown
from tests.integration.doors import Door
from tests.support.rig.cluster import NAMES, ClusterRig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]
STREAMS = ("UP_00", "DOWN_00", "DICT", "TWIN_STATE", "TWIN_EVENTS", "TWIN_CMD", "PUSH", "RELAY_00")


async def test_servers_and_control_plane_are_upgraded_one_by_one(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running(tmp_path))
        hub = cluster.hub
        door = await Door(cluster.world, cluster.vehicles[0]).open()
        operator = await stack.enter_async_context(hub.connection(max_reconnect_attempts=-1))
        async with cluster.load():
            for name in NAMES:
                await cluster.more(1)
                await hub.servers[name].stop(signal.SIGTERM)
                await door.command(operator)
                await cluster.more(1)
                await hub.start_server(name)
                for stream in STREAMS:
                    await hub.whole(stream)
            await hub.control.stop()
            await cluster.more(1)
            await hub.start_control()
            await door.command(operator)
            await cluster.more(1)
        await cluster.is_whole()
        door.each_once()
        for code in ("replica-behind", "replica-damaged"):
            await until_shown(cluster.world, code, shown=False)
