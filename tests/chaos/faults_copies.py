"""An older copy of a vehicle's ledger put in the place of the one that it has: alone, or over another OUT.

The copy is taken at the beginning of the fault, while the agent stands still, and put back at its end. OUT is then
as it is; or wiped, with all that the leaf has stored; or trimmed to what the hub has not taken, as its limits
do. What stood in the ledger that went away, and nowhere else, is gone, and is looked up first
(`faults_ledger.py`). What waits in OUT must arrive. NOT modelled: a copy that is put back twice.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tomllib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from tests.chaos.damage import Damage
from tests.chaos.faults_ledger import ledger_of, look_up, note_set_aside
from tests.chaos.kinds import kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import DeviceRig

_FILES = ("", "-wal")
"""What a ledger is made of, beside an index that SQLite makes anew."""
_STREAMS = ("OUT_live", "OUT_bulk")
_ASK_S, _TRIES_S = 5.0, 20.0
_BATCH = 256


async def _old_ledger(out: str, world: World, fault: Fault) -> None:
    rig = world.vehicles[fault.target].rig
    copy = ledger_of(rig).parent.parent.with_name(f"{fault.target}-older-ledger")
    async with world.turn(f"{fault.target} copy"):
        since_ns = world.now_ns()
        try:
            if await _copied(world, rig, copy):
                await asyncio.sleep(fault.length_s)
                await _put_back(
                    out, world, rig, Damage(fault.target, 0, 0, since_ns=since_ns), copy
                )
            else:
                world.idle[fault.kind] += 1
        finally:
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)


for _kind, _out, _weight in (
    ("old-ledger", "kept", 1.0),
    ("old-ledger-trimmed", "trimmed", 0.7),
    ("old-ledger-wiped", "wiped", 0.7),
):
    kind(_kind, Habit(_weight, 15.0, "copy"))(partial(_old_ledger, _out))


async def _copied(world: World, rig: DeviceRig, copy: Path) -> bool:
    """Copy the ledger of an agent that stands still; False where there is none yet, or a damaged one."""
    async with world.turn_of(rig.agent):
        os.kill(rig.agent.pid, signal.SIGSTOP)
        try:
            await asyncio.to_thread(copy_ledger, ledger_of(rig), copy)
        finally:
            os.kill(rig.agent.pid, signal.SIGCONT)
    return await asyncio.to_thread(look_up, copy / "ledger.db", Damage(rig.device, 0, 0))


async def _put_back(out: str, world: World, rig: DeviceRig, damage: Damage, copy: Path) -> None:
    """Put the copy back, over OUT as `out` says it is; what is gone with that is noted."""
    ledger = ledger_of(rig)
    # What fills the ledger's disk waits: there is room for the copy.
    async with (
        world.turn_of(rig.agent),
        world.turn(f"{rig.device} disk of ledger"),
        world.turn_of(rig.leaf),
    ):
        await world.kill(rig.agent)
        note_set_aside(world)
        # Nothing is kept in it any more.
        damage.at_ns, damage.until_ns, damage.put_back = world.now_ns(), 1, True
        if not await asyncio.to_thread(look_up, ledger, damage, world.rollbacks):
            # It was damaged before, and looked up then; what was kept in it since goes with it.
            for each in world.damages:
                if each.device == rig.device and not each.until_ns:
                    each.until_ns = damage.at_ns
        waits = await waiting(rig, damage, trim=out == "trimmed")
        if out == "wiped":
            damage.take(waits)
            await world.kill(rig.leaf)
            with suppress(FileNotFoundError):
                await asyncio.to_thread(shutil.rmtree, rig.agent_toml.parent / "backhaul-leaf")
        else:
            damage.leave(waits)
            damage.in_out = waits
        has = Damage(rig.device, 0, 0)
        await asyncio.to_thread(look_up, copy / "ledger.db", has)
        damage.leave(has)
        world.damages.append(damage)
        await asyncio.to_thread(replace_ledger, copy, ledger)
        if out == "wiped":
            await rig.leaf.start()
        await rig.agent.start()


async def waiting(rig: DeviceRig, damage: Damage, *, trim: bool) -> Damage:
    """Return what waits in OUT for the hub to take it, as far as the leaf says so; trim OUT to that."""
    waits = Damage(rig.device, 0, damage.at_ns, dictionaries=damage.dictionaries)
    token = tomllib.loads(rig.agent_toml.read_text())["device"]["token"]
    deadline_s = asyncio.get_running_loop().time() + _TRIES_S
    for stream in _STREAMS:
        while True:
            try:
                async with asyncio.timeout(_TRIES_S), rig.connection() as leaf:
                    jetstream = leaf.jetstream(timeout=_ASK_S)
                    rows = await _rows(jetstream, stream, token, trim=trim)
                waits.add_rows(rows)
                break
            except (NatsError, OSError, TimeoutError):
                if asyncio.get_running_loop().time() > deadline_s:
                    break  # it may have been killed before it had made one
                await asyncio.sleep(0.2)
    return waits


async def _rows(
    jetstream: JetStreamContext, stream: str, durable: str, *, trim: bool
) -> list[tuple[str, bytes]]:
    info = await jetstream.consumer_info(stream, durable)
    floor = info.ack_floor.stream_seq if info.ack_floor else 0
    if trim:
        await jetstream.purge_stream(stream, seq=floor + 1)
    state = (await jetstream.stream_info(stream)).state
    rows = []
    for low in range(max(floor + 1, state.first_seq), state.last_seq + 1, _BATCH):
        seqs = range(low, min(low + _BATCH, state.last_seq + 1))
        found = await asyncio.gather(*(jetstream.get_msg(stream, seq) for seq in seqs))
        rows += [(str(each.subject), each.data or b"") for each in found]
    return rows


def copy_ledger(ledger: Path, copy: Path) -> None:
    """Copy a ledger whose agent does not run, or stands still, into a directory that is made."""
    copy.mkdir()
    for end in _FILES:
        with suppress(FileNotFoundError):
            shutil.copy(f"{ledger}{end}", copy / f"{ledger.name}{end}")


def replace_ledger(copy: Path, ledger: Path) -> None:
    """Put what `copy_ledger` has made in the place of a ledger whose agent does not run."""
    for end in (*_FILES, "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{ledger}{end}").unlink()
    for end in _FILES:
        if (copy / f"{ledger.name}{end}").exists():
            shutil.copy(copy / f"{ledger.name}{end}", f"{ledger}{end}")
