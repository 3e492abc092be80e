"""The network parts one server of three from the other two; vehicles and the control plane are on either side.

Real servers whose routes go through relays, real vehicles, under load. Modelled: all connections between the two
sides end and new ones are refused, then heal. Not covered: a cut that goes one way alone, connections that stay
and carry nothing between servers.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from nats.errors import Error as NatsError

from backhaul_hub.shards import api_subject
from tests.integration.clusters import DEADLINE_S, DEVICES, STREAM, Cluster, running
from tests.integration.doors import Door
from tests.integration.partitions import ALONE, OTHER, connected, laid, watermark_moves
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


async def stored_at(hub: ClusterRig, server: str) -> int:
    """Return how many messages UP has by the word of its leader on a server's side, 0 where none leads there.

    A server that lost its leader may answer by itself for as long as it is parted (seen with 2.15.1): it names none.
    """
    client = await connected(hub, server)
    try:
        answer = await client.request(api_subject(f"STREAM.INFO.{STREAM}"), b"", timeout=2)
    except NatsError:
        return 0
    finally:
        await client.close()
    found = json.loads(answer.data)
    leads = found.get("cluster", {}).get("leader") not in (None, ALONE)
    return int(found["state"]["messages"]) if leads else 0


async def takes_more(cluster: Cluster, server: str) -> None:
    """Wait until UP takes something in on a server's side."""
    before = 0
    while not before:
        before = await stored_at(cluster.hub, server)

    async def more() -> bool:
        return await stored_at(cluster.hub, server) > before

    await until(more, f"UP takes more in at {server}", deadline_s=DEADLINE_S)


async def test_what_comes_on_both_sides_is_there_once_the_network_is_whole(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        network = laid(stack)
        sides = dict(zip(DEVICES, (ALONE, OTHER), strict=True))
        cluster = await stack.enter_async_context(
            running(tmp_path, before_start=network.between, servers=sides)
        )
        hub, (apart, _) = cluster.hub, cluster.vehicles

        async def cut_off() -> bool:
            # A leader that is alone believes in itself for some ten seconds.
            return not await stored_at(hub, ALONE)

        door = await Door(cluster.world, apart).open()
        operator = await connected(hub, OTHER)
        stack.push_async_callback(operator.close)
        async with cluster.load():
            await cluster.more(2)
            await door.command(operator)
            for seen in ([ALONE], [name for name in NAMES if name != ALONE]):
                await network.control_sees(*seen)
                await cluster.more(1)
                await network.part(ALONE)
                await until(cut_off, "nobody leads there", deadline_s=DEADLINE_S)
                await takes_more(cluster, OTHER)
                commanding = asyncio.create_task(door.command(operator))
                if ALONE not in seen:
                    # Nobody else is needed: what comes there is held, and its vehicle hears so.
                    await watermark_moves(cluster, DEVICES[1])
                await cluster.more(2)
                await network.heal(ALONE)
                await commanding
        await network.control_sees(*NAMES)
        await cluster.is_whole()
        door.each_once()
