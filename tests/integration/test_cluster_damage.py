"""One server of three has its store damaged while it is down: it is named, leads nothing, and copies all anew.

Real servers, real vehicles, under load. Damage: a block of UP cut short, a bit turned over in one, the whole store
gone. Not covered: the same message damaged on two servers, a disk that lies while its server runs, and a full disk
(docs/cluster.md says what was seen of one).
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
from nats.errors import Error as NatsError

from backhaul_codec import Point
from backhaul_hub.shards import api_subject
from tests.integration.clusters import DEADLINE_S, STREAM, Cluster, alike, running
from tests.integration.conditions import until_shown
from tests.integration.readings import points
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import RigError
from tests.support.rig.repair import repaired
from tests.support.store_damage import blocks, cut_short, flip_a_bit, forget_indexes
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]
BYTES_MAX = 16 << 20
"""Of UP: a server stores a quarter of it in a file, and 4 MiB at least."""


async def small_blocks(hub: ClusterRig) -> None:
    path = hub.directory / "hub.toml"
    before, up, after = path.read_text().partition("[up]\n")
    text, changed = re.subn(r"(?m)^bytes_max = \d+", f"bytes_max = {BYTES_MAX}", after, count=1)
    assert changed
    path.write_text(before + up + text)


def noise(first: int, count: int) -> list[Point]:
    """Make points that no frame makes small."""
    random = Random(first)
    return [
        Point("battery", "log", number * 10**9, random.randbytes(80).hex())
        for number in range(first, first + count)
    ]


def begun(files: list[Path]) -> bool:
    """Tell whether a second file has content."""
    return len(files) > 1 and files[1].stat().st_size > 100_000


async def let_lead(hub: ClusterRig, server: str) -> None:
    """Have a server lead UP, if only for a moment."""
    client = await hub.connect()
    try:
        body = json.dumps({"placement": {"preferred": server}}).encode()
        with suppress(NatsError):  # while nobody leads, nobody answers
            await client.request(api_subject(f"STREAM.LEADER.STEPDOWN.{STREAM}"), body, timeout=2)
    finally:
        await client.close()


async def copies_anew(cluster: Cluster, server: str) -> None:
    """Do as docs/cluster.md says."""
    said = await repaired(cluster.hub, server)
    assert f"{server} lacks " in said
    assert "that the counts show" not in said
    await until_shown(cluster.world, "replica-damaged", shown=False)
    await cluster.hub.copied(server)


async def test_a_damaged_server_is_named_leads_nothing_and_copies_all_anew(tmp_path: Path) -> None:
    async with running(tmp_path, before_start=small_blocks) as cluster:
        hub, world = cluster.hub, cluster.world
        cluster.points = noise
        leader = await hub.leader(STREAM)
        first, second = (name for name in NAMES if name != leader)
        async with cluster.load():
            # The end of the last file that holds any is not missed: a server asks for what comes after its last.
            await until(lambda: begun(blocks(hub.store(first), STREAM)), deadline_s=DEADLINE_S)
            cluster.points = points
            # In order: it keeps no log of its group that it could restore the messages from.
            await hub.servers[first].stop()
            cut_short(blocks(hub.store(first), STREAM)[0])
            forget_indexes(hub.store(first))
            await cluster.more()
            await hub.start_server(first)
            shown = await until_shown(world, "replica-damaged", about=first, detail=STREAM)
            assert shown["about"] == first
            assert "repair-server" in shown["hint"]
            # Its messages are on the other two alone: neither may lose its store.
            with pytest.raises(RigError, match=f"{first} lacks"):
                await repaired(hub, second)
            # It may lead all the same: its cluster calls it current.
            seen = hub.control.logged_bytes
            while b"damaged_leader_stepped_down" not in hub.control.logged()[seen:]:
                await let_lead(hub, first)
                await cluster.more(1)
        await cluster.is_whole()
        await copies_anew(cluster, first)
        await until(lambda: alike(hub), "all servers hold the same")

        await hub.servers[second].stop()
        flip_a_bit(blocks(hub.store(second), STREAM)[0])
        forget_indexes(hub.store(second))
        await hub.start_server(second)
        await until_shown(world, "replica-damaged", about=second, detail=STREAM)
        await copies_anew(cluster, second)

        async with cluster.load():
            await cluster.more(1)
            lost = await hub.leader(STREAM)
            await hub.servers[lost].stop(signal.SIGKILL)
            shutil.rmtree(hub.store(lost))
            await hub.start_server(lost)
            await cluster.more()
        await cluster.is_whole()
        await until(lambda: alike(hub), "all servers hold the same")
