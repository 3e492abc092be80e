"""A hub of three servers loses one, then another, then two at once: what vehicles kept arrives.

Real servers, real vehicles, on one machine. Not covered: a network that parts the servers, disks that
are lost, three machines with clocks of their own. No second is asserted: `benchmarks/hub/cluster.py` says
how long writing pauses.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.integration.clusters import DEADLINE_S, STREAM, Cluster, cluster
from tests.integration.conditions import until_shown
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import RigError, program, run_to_end

__all__ = ["cluster"]  # a fixture

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


async def led(hub: ClusterRig) -> bool:
    """Tell whether the stream has a leader, after three seconds of asking."""
    try:
        await hub.info(STREAM, wait_s=3)
    except RigError:
        return False
    return True


async def test_nothing_is_lost_with_one_server_or_two(cluster: Cluster) -> None:
    hub = cluster.hub
    async with cluster.load():
        await cluster.more()
        first = await hub.leader(STREAM)
        await hub.servers[first].stop(signal.SIGKILL)
        await cluster.more()
        second = await hub.leader(STREAM)
        assert second != first
    await cluster.is_whole()
    # The other one may be behind for a moment, too, under the new leader.
    await until_shown(cluster.world, "replica-behind", detail=f"{first} is ")

    async with cluster.load():
        await hub.start_server(first)
        await hub.whole(STREAM)
        await until_shown(cluster.world, "replica-behind", shown=False)
        await hub.servers[second].stop(signal.SIGKILL)
        await cluster.more()
        await hub.leader(STREAM)
    await cluster.is_whole()

    async with cluster.load():
        third = next(name for name in NAMES if name not in (first, second))
        await hub.servers[third].stop(signal.SIGKILL)
        await cluster.more()
    # A leader alone believes in itself for some ten seconds, and can store nothing meanwhile.
    async with asyncio.timeout(DEADLINE_S):
        while await led(hub):
            pass
    for name in (second, third):
        await hub.start_server(name)
    await cluster.is_whole()


async def test_a_second_control_plane_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RigError, match="another control plane"):
        await run_to_end([program("backhaul-hub"), "up", "--dir", str(cluster.hub.directory)])
    cluster.hub.control.assert_alive()
    async with cluster.load():
        await cluster.more(2)
    await cluster.is_whole()
