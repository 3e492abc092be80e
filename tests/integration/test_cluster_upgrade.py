"""A hub of three servers is upgraded under load: the servers one by one, then the control plane, as docs/cluster.md says.

Real servers, real vehicles. The control plane is one of before at first, out of this repository's own history (a clone
that is shallow takes today's); all servers are of one version, since there is one to install. A server is stopped in
order: by `ldm` it would let its clients go over two minutes.
"""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import stream_names
from tests.integration.clusters import DEADLINE_S, running
from tests.integration.conditions import until_shown
from tests.integration.doors import Door
from tests.integration.older import ShallowCloneError, older_packages
from tests.support.rig.cluster import NAMES, ClusterRig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


async def all_whole(hub: ClusterRig) -> None:
    """Wait until every server has all of every stream."""
    async with hub.connection() as client:
        names = await stream_names(JetStreamApi(client, patience_s=DEADLINE_S))
    for name in sorted(names):
        await hub.whole(name)


async def test_servers_and_control_plane_are_upgraded_one_by_one(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        older_path = ""
        with suppress(ShallowCloneError):
            older_path = older_packages(tmp_path / "older")
        cluster = await stack.enter_async_context(running(tmp_path, older_path=older_path))
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
                await all_whole(hub)
            await hub.control.stop()
            hub.control.before = ()
            await cluster.more(1)
            await hub.start_control()
            await all_whole(hub)  # those too that a hub of before did not have
            await door.command(operator)
            await cluster.more(1)
        await cluster.is_whole()
        door.each_once()
        for code in ("replica-behind", "replica-damaged"):
            await until_shown(cluster.world, code, shown=False)
