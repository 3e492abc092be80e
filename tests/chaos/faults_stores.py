"""What can go wrong with stores: gone, or put back as they were.

Modelled: a store as it stood at one moment (its server frozen), put back later with the server killed:
what a power cut comes to, as far as a process can, or a copy that somebody puts back. NOT modelled: writes
that reached the disk in another order than they were made.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.lane_rows import read_lanes
from tests.chaos.damage import Rollback
from tests.chaos.evidence import LaneName
from tests.chaos.faults_registry import REGISTRY
from tests.chaos.kinds import ALONE, kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import Part


def _leaf_store(world: World, fault: Fault) -> Path:
    return world.vehicles[fault.target].rig.agent_toml.parent / "backhaul-leaf"


@kind("wipe-leaf", Habit(2, 2.0, "leaf"))
async def _wipe_leaf(world: World, fault: Fault) -> None:
    """Kill a leaf, and lose all that it has stored."""
    leaf = world.vehicles[fault.target].rig.leaf
    async with world.turn_of(leaf):
        await world.kill(leaf)
        with suppress(FileNotFoundError):  # killed before it had made one
            await asyncio.to_thread(shutil.rmtree, _leaf_store(world, fault))
        world.store_losses.append((fault.target, world.now_ns()))
        await asyncio.sleep(fault.length_s)
        await leaf.start()


@kind("rollback-leaf", Habit(2, 10.0, "leaf"))
async def _roll_leaf_back(world: World, fault: Fault) -> None:
    """Lose what a leaf has stored since the beginning of the fault; nothing is lost with it."""
    leaf = world.vehicles[fault.target].rig.leaf
    await _roll_back(world, fault, leaf, _leaf_store(world, fault))
    world.store_losses.append((fault.target, world.now_ns()))


@kind("rollback-server", Habit(1, 10.0, "server", at_hub=True, needs=ALONE))
async def _roll_server_back(world: World, fault: Fault) -> None:
    """Lose what the hub has stored since the beginning of the fault, but for hub.db.

    UP is filled again; a command that nobody had taken out of its stream yet is gone (docs/backup.md).
    """
    async with world.turn(REGISTRY):
        rollback = Rollback(world.now_ns(), await _held(world))
    world.rollbacks.append(rollback)
    await _roll_back(world, fault, world.hub.server, world.hub.directory / "jetstream")
    rollback.until_ns = world.now_ns()


async def _held(world: World) -> dict[LaneName, int]:
    """Return how far the hub surely holds each lane: hub.db never knows of more than UP."""
    async with await Registry.open_existing(world.hub.directory / "hub.db") as registry:
        lanes = await read_lanes(registry)
    return {LaneName(*key): state.held.contiguous for key, state in lanes.items()}


async def _roll_back(world: World, fault: Fault, part: Part, store: Path) -> None:
    """Copy a store while its server stands still, and put the copy back in the end, with a kill."""
    older = store.with_name(f"{store.name}-older")
    async with world.turn_of(part):
        os.kill(part.pid, signal.SIGSTOP)
        try:
            await asyncio.to_thread(_copy, store, older)
        finally:
            os.kill(part.pid, signal.SIGCONT)
        await asyncio.sleep(fault.length_s)
        await world.kill(part)
        await asyncio.to_thread(_replace, store, older)
        await part.start()


def _copy(store: Path, older: Path) -> None:
    older.mkdir()
    with suppress(FileNotFoundError):  # the server was killed before it had made one
        shutil.copytree(store, older, dirs_exist_ok=True)


def _replace(store: Path, older: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(store)
    older.rename(store)
