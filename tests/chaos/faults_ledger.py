"""A vehicle's ledger damaged: cut short at a random place, bits flipped, a block overwritten; file or log.

What stood in it alone is looked up first, on a copy, so that the checker can excuse that and nothing else.
NOT modelled: the index of the log going with it, as in a power cut.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from backhaul_agent.commit.framer import unpack
from backhaul_agent.ledger.damage import asides
from tests.chaos.damage import Damage, proved
from tests.chaos.evidence import LaneName
from tests.chaos.kinds import kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.damage import Rollback
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World
    from tests.support.rig.parts import DeviceRig

_BLOCK = 512
_LANES = "SELECT id, name, epoch, watermark FROM lanes"
_UNPROVED = "SELECT subject, body FROM messages WHERE lane = ? AND seq > ?"
_DICTIONARIES = "SELECT CAST(body AS BLOB) FROM dictionaries"
_EPOCH = "SELECT value FROM meta WHERE name = 'epoch'"


@kind("damage-ledger", Habit(1.5, 2.0, "agent"))
async def _damage_ledger(world: World, fault: Fault) -> None:
    """Kill an agent and damage its ledger; it goes on with what is left of it, or with a new one."""
    rig = world.vehicles[fault.target].rig
    ledger = ledger_of(rig)
    async with world.turn_of(rig.agent):
        await world.kill(rig.agent)
        note_set_aside(world)
        damage = Damage(fault.target, 0, world.now_ns(), inode=inode_of(ledger))
        if await asyncio.to_thread(look_up, ledger, damage, world.rollbacks):
            world.damages.append(damage)
            await asyncio.to_thread(spoil, ledger, Random(str(fault)))
        else:
            world.idle[fault.kind] += 1
        await asyncio.sleep(fault.length_s)
        await rig.agent.start()


def note_set_aside(world: World) -> None:
    """Note when the ledgers that were damaged last have been set aside, if they have.

    What was kept after an earlier damage was looked up at the next one.
    """
    for device, vehicle in world.vehicles.items():
        damages = [each for each in world.damages if each.device == device]
        if damages and not damages[-1].until_ns:
            damages[-1].until_ns = set_aside_ns(ledger_of(vehicle.rig), damages[-1], world.now_ns())


def set_aside_ns(ledger: Path, damage: Damage, now_ns: int) -> int:
    """Return when a damaged file went out of the way, 0 where it has not; now, where it is no more."""
    with suppress(FileNotFoundError):
        moved = [each.stat().st_ctime_ns for each in asides(ledger)]
        if later := [moved_ns for moved_ns in moved if moved_ns > damage.at_ns]:
            return min(later)
    # Where the disk has no room for it the agent removes it.
    return now_ns if inode_of(ledger) not in (0, damage.inode) else 0


def inode_of(path: Path) -> int:
    """Return which file there is; 0 for none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def spoil(ledger: Path, random: Random) -> None:
    """Do one damage: to the file or its log, one as likely as the other."""
    files = [each for each in (ledger, Path(f"{ledger}-wal")) if each.exists()]
    path = random.choice(files)
    # In its place: the disk may be full.
    with path.open("r+b") as file:
        body = _spoilt(bytearray(file.read()), random)
        file.seek(0)
        file.write(body)
        file.truncate()


def _spoilt(body: bytearray, random: Random) -> bytearray:
    at = random.randrange(len(body) + 1)
    match random.choice(("cut", "flip", "block")):
        case "cut":
            del body[at:]
        case "flip":
            for near in range(at, min(at + random.randint(1, 8), len(body))):
                body[near] ^= 1 << random.randrange(8)
        case "block":
            body[at : at + _BLOCK] = random.randbytes(len(body[at : at + _BLOCK]))
    return body


def ledger_of(rig: DeviceRig) -> Path:
    """Return where a vehicle's ledger is."""
    return rig.agent_toml.parent / "backhaul-agent" / "ledger.db"


def look_up(ledger: Path, damage: Damage, rollbacks: Sequence[Rollback] = ()) -> bool:
    """Say what stands in a ledger alone; False where it is damaged already, or not made yet."""
    try:
        with opened(ledger) as db:
            [(damage.epoch,)] = db.execute(_EPOCH)
            damage.dictionaries = [body for (body,) in db.execute(_DICTIONARIES)]
            for id_, name, epoch, watermark in db.execute(_LANES).fetchall():
                lane = LaneName(damage.device, name, epoch)
                above = proved(lane, watermark, rollbacks, damage.at_ns)
                damage.add_rows(db.execute(_UNPROVED, (id_, above)))
            add_staged(db, damage)
    except (sqlite3.Error, ValueError):
        return False
    return True


def add_staged(db: sqlite3.Connection, damage: Damage) -> None:
    """Add what stands in no message yet. Raises: sqlite3.Error, ValueError: it cannot be read."""
    for node, body in db.execute("SELECT node, body FROM staged"):
        if not isinstance(body, bytes):
            raise ValueError("a cell of a staged row is damaged")  # noqa: TRY004 - as whatever else is damaged
        damage.add_staged(unpack(node, body))


@contextmanager
def opened(ledger: Path) -> Iterator[sqlite3.Connection]:
    """Have a copy of a ledger open. Raises: sqlite3.Error."""
    with tempfile.TemporaryDirectory() as there:
        copy = Path(there) / ledger.name
        for end in ("", "-wal"):
            if Path(f"{ledger}{end}").exists():
                shutil.copy(f"{ledger}{end}", f"{copy}{end}")
        with closing(sqlite3.connect(copy)) as db:
            yield db
