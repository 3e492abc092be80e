"""The disk of one server of three is full, under load: it is named, and copies the rest once there is room.

Real servers, one on a small file system of its own, and real vehicles. Skipped where nothing may be mounted.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import alike, running
from tests.integration.conditions import until_shown
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.rig.cluster import ClusterRig

__all__ = ["small_disk"]
pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]
FULL = "b"


async def test_a_server_whose_disk_is_full_is_named_and_copies_the_rest_later(
    tmp_path: Path, small_disk: Callable[[int], SmallDisk]
) -> None:
    disk = small_disk(256 << 20)

    async def there(hub: ClusterRig) -> None:
        conf = hub.directory / "servers" / FULL / "hub.conf"
        text, usual = conf.read_text(), str(hub.store(FULL).absolute())
        assert text.count(usual) == 1
        conf.write_text(text.replace(usual, str(disk.path / "jetstream")))
        shutil.copytree(usual, disk.path / "jetstream")

    async with running(tmp_path, before_start=there) as cluster:
        hub, world = cluster.hub, cluster.world
        async with cluster.load():
            await cluster.more(1)
            disk.fill()
            shown = await until_shown(world, "server-off", about=FULL)
            assert shown["about"] == FULL
            await cluster.more(2)
            disk.drain()
            await hub.servers[FULL].stop()
            await hub.start_server(FULL)
            await until_shown(world, "server-off", shown=False)
            await hub.copied(FULL)
        await cluster.is_whole()
        await until(lambda: alike(hub), "all servers hold the same")
