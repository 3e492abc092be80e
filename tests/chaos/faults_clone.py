"""A cloned disk: two machines with one identity, of which now one and then the other stands in the vehicle.

The image is a vehicle's whole disk, ledger and leaf's store, as both stand still. Halfway through the fault the
machine is taken out and one with the image put in, in half of all cases with a machine-id of its own; programs
publish to that one from then on. In half of all cases the first one was offline since the image was made, so that both
write in one epoch. At the end the second one is switched off for good, and the first one is back. What the second one
had alone by then is gone with it, and is looked up first. Once all faults are over an operator says that one
machine is left, as gaps that the second one may fill are never given up otherwise (`settle_clones`).

NOT modelled: both of them online at once (`tests/integration/test_identities.py`); a clone of a clone; a second machine
that stays, or comes back once the operator has spoken; files that are sent; a disk whose ledger was damaged before, and
nobody has noticed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

import click
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_runtime.clock import SystemClock
from tests.chaos.clone import Clone
from tests.chaos.damage import Damage
from tests.chaos.evidence import LaneName
from tests.chaos.faults_copies import copy_ledger, replace_ledger, waiting
from tests.chaos.faults_ledger import (
    add_staged,
    inode_of,
    ledger_of,
    look_up,
    note_set_aside,
    opened,
)
from tests.chaos.kinds import kind
from tests.chaos.schedule import Habit
from tests.support.rig.parts import RigError, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.chaos.evidence import Found
    from tests.chaos.look import Look
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import DeviceRig

_ENDS = "SELECT id, name, epoch, next_seq - 1 FROM lanes"
_OPEN = "SELECT seq, subject, body FROM messages WHERE lane = ? AND boot > 0 ORDER BY seq"
_REST_S, _SETTLED_S, _GONE_ON_S, _LOOK_S = 60.0, 60.0, 20.0, 0.5


@kind("clone", Habit(0.8, 20.0, "copy"))
async def _clone(world: World, fault: Fault) -> None:
    rig = world.vehicles[fault.target].rig
    place = rig.agent_toml.parent.parent
    image, first = place / f"{fault.target}-image", place / f"{fault.target}-first"
    clone, random = Clone(fault.target, Damage(fault.target, 0, 0)), Random(str(fault))
    own_id, offline = random.random() < 1 / 2, random.random() < 1 / 2
    async with world.turn(f"{fault.target} copy"):
        try:
            since_ns = world.now_ns()
            async with AsyncExitStack() as alone:
                if offline:
                    await alone.enter_async_context(_link_cut(world, fault))
                if not await _imaged(world, rig, image, clone):
                    world.idle[fault.kind] += 1
                    return
                await asyncio.sleep(fault.length_s / 2)
                await _gone_on(ledger_of(rig), clone, "next_seq - 1")
                # The second one finds a link: without the hub's word it would open an epoch of its own.
                unnoticed, first_id = await _second_in(
                    world, rig, (image, first), clone, alone.aclose, own_id=own_id
                )
            await asyncio.sleep(fault.length_s / 2)
            await _gone_on(ledger_of(rig), clone, "watermark")
            damage = Damage(fault.target, 0, 0, put_back=True, since_ns=since_ns, clone=clone)
            async with _switched_off(world, rig, damage):
                await _first_back(world, rig, first, damage)
                world.vehicles[fault.target].machine.put_in(first_id)
                clone.first_ns = world.now_ns()
                if unnoticed is not None:
                    unnoticed.inode = inode_of(ledger_of(rig))
                    world.damages.append(unnoticed)
        finally:
            for each in (image, first):
                await asyncio.to_thread(shutil.rmtree, each, ignore_errors=True)


async def _imaged(world: World, rig: DeviceRig, image: Path, clone: Clone) -> bool:
    """Copy the disk of a machine that stands still; False where its ledger is, or may be, damaged."""
    async with world.turn_of(rig.agent), world.turn_of(rig.leaf):
        note_set_aside(world)
        pids = [rig.agent.pid, rig.leaf.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.to_thread(_save, rig, image)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    sound = await asyncio.to_thread(look_at_image, image / "ledger.db", clone)
    return sound and not _unnoticed(world, rig.device)


async def _gone_on(ledger: Path, clone: Clone, end: str) -> None:
    """Wait until a machine has gone on from the image: a busy one may need longer than the fault takes.

    `end`: what tells that of a lane: "next_seq - 1" for what is kept, "watermark" for what the hub has.
    """
    deadline_s = asyncio.get_running_loop().time() + _GONE_ON_S
    while not await asyncio.to_thread(_beyond, ledger, clone, end):
        if asyncio.get_running_loop().time() > deadline_s:
            return  # its link, the hub or its disk may be what another fault has taken
        await asyncio.sleep(_LOOK_S)


def _beyond(ledger: Path, clone: Clone, end: str) -> bool:
    with suppress(sqlite3.Error, OSError), opened(ledger) as db:
        for name, epoch, seq in db.execute(f"SELECT name, epoch, {end} FROM lanes"):
            if seq > clone.ends.get(LaneName(clone.device, name, epoch), 0):
                return True
    return False


async def _second_in(
    world: World,
    rig: DeviceRig,
    images: tuple[Path, Path],
    clone: Clone,
    heal: Callable[[], Awaitable[None]],
    *,
    own_id: bool,
) -> tuple[Damage | None, str]:
    """Save the first machine's disk, and put the second one in; `heal` the link before that starts.

    Returns the damage of the first one's ledger that it has not noticed yet, and its machine-id.
    """
    image, first = images
    machine = world.vehicles[rig.device].machine
    async with _switched_off(world, rig):
        note_set_aside(world)
        # Nobody is to take the second machine's ledger for one that took the place of a damaged one.
        unnoticed = _unnoticed(world, rig.device)
        world.damages[:] = [each for each in world.damages if each is not unnoticed]
        await asyncio.to_thread(_save, rig, first)
        await asyncio.to_thread(_put_in, rig, image)
        first_id = machine.id
        if own_id:
            machine.put_in(machine.another())
        world.clones.append(clone)
        clone.second_ns = world.now_ns()
        await heal()
    return unnoticed, first_id


@asynccontextmanager
async def _link_cut(world: World, fault: Fault) -> AsyncIterator[None]:
    """Have a machine offline: what it keeps in an epoch the other one does not hear of, and goes on in that, too."""
    link = world.vehicles[fault.target].link
    async with world.turn(f"{fault.target} link"):
        await link.cut()
        try:
            yield
        finally:
            await link.heal()


async def _first_back(world: World, rig: DeviceRig, first: Path, damage: Damage) -> None:
    """Take the second machine, which is off, out for good, and put the first one in."""
    note_set_aside(world)
    # Nothing is kept on it any more.
    damage.at_ns, damage.until_ns = world.now_ns(), 1
    if unnoticed := _unnoticed(world, rig.device):
        unnoticed.until_ns = damage.at_ns
    # One that was damaged was looked up then, and what it kept since goes with it.
    await asyncio.to_thread(look_up, ledger_of(rig), damage, world.rollbacks)
    has = Damage(rig.device, 0, 0)
    await asyncio.to_thread(look_up, first / "ledger.db", has)
    damage.leave(has)
    world.damages.append(damage)
    await asyncio.to_thread(_put_in, rig, first)


def _unnoticed(world: World, device: str) -> Damage | None:
    """Return the damage of a device's ledger that its agent has not set aside."""
    damages = [each for each in world.damages if each.device == device]
    return damages[-1] if damages and not damages[-1].until_ns else None


@asynccontextmanager
async def _switched_off(
    world: World, rig: DeviceRig, damage: Damage | None = None
) -> AsyncIterator[None]:
    """Have a machine off, and whatever fills its disks wait; `damage` takes what waits in OUT."""
    async with (
        world.turn_of(rig.agent),
        world.turn(f"{rig.device} disk of ledger"),
        world.turn_of(rig.leaf),
    ):
        await world.kill(rig.agent)
        if damage is not None:
            damage.take(await waiting(rig, damage, trim=False))
        await world.kill(rig.leaf)
        try:
            yield
        finally:
            await rig.leaf.start()
            await rig.agent.start()


def look_at_image(ledger: Path, clone: Clone) -> bool:
    """Say what stands on the disk that is to be cloned; False where it is damaged, or there is none."""
    try:
        with opened(ledger) as db:
            for id_, name, epoch, end in db.execute(_ENDS).fetchall():
                rows = db.execute(_OPEN, (id_,)).fetchall()
                clone.open.add_rows((subject, body) for _, subject, body in rows)
                lane = LaneName(clone.device, name, epoch)
                clone.ends[lane] = rows[0][0] - 1 if rows else end
            add_staged(db, clone.open)
    except (sqlite3.Error, ValueError):
        return False
    return True


async def settle_clones(world: World, looking: Look) -> None:
    """Have an operator say of each vehicle that had a clone that one machine is left.

    Said once the hub has heard the first one again, that has come to rest, and the hub has told of whatever
    differs; after a while, as gaps may be in the way of that, once it was heard.

    Raises:
        HubError, ClickException: the hub refuses to hear it, or does not answer, for longer than anything takes.
    """
    clock = asyncio.get_running_loop()
    patient_s = clock.time() + _REST_S
    deadline_s = patient_s + _SETTLED_S
    left = {each.device for each in world.clones}
    while left and clock.time() < deadline_s:
        try:
            found = await looking.take(SystemClock().now_ns())
            for device in sorted(left):
                if ready(found, device, patient=clock.time() < patient_s):
                    hub = world.hub
                    words = ["one-machine", device, "--dir", str(hub.directory)]
                    await hub.run([program("backhaul-hub"), *words])
                    left.remove(device)
        except (NatsError, OSError, RigError, HubError, sqlite3.Error, click.ClickException):
            if clock.time() > deadline_s:
                raise
        await asyncio.sleep(_LOOK_S)


def ready(found: Found, device: str, *, patient: bool) -> bool:
    """Whether the hub has heard the machine last that is in the vehicle.

    While there is time, also whether that one has come to rest and the hub has told of what differs.
    """
    [said] = [each for each in found.report["devices"] if each["device"] == device]
    seen = said["agent"]["machines"]
    now = found.machines[device]
    last = {name: seen[-1][name] for name in now} if seen else {}
    rests = not any(what.startswith(device) for what in found.restless)
    told = device not in found.forked() or device in found.told_two
    return last == now and (not patient or (rests and told))


def _save(rig: DeviceRig, image: Path) -> None:
    copy_ledger(ledger_of(rig), image)
    with suppress(FileNotFoundError):  # killed before it had made one
        try:
            shutil.copytree(_store(rig), image / "leaf")
        except shutil.Error:  # the signal that stops the server came to it in the meantime
            shutil.rmtree(image / "leaf")
            shutil.copytree(_store(rig), image / "leaf")


def _put_in(rig: DeviceRig, image: Path) -> None:
    replace_ledger(image, ledger_of(rig))
    shutil.rmtree(_store(rig), ignore_errors=True)
    if (image / "leaf").exists():
        shutil.copytree(image / "leaf", _store(rig))


def _store(rig: DeviceRig) -> Path:
    return rig.agent_toml.parent / "backhaul-leaf"
