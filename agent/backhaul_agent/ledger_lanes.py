"""The lanes of a ledger: what is known of each, in this epoch and in former ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backhaul_agent import ledger_boots
from backhaul_agent.steps import Step, Steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import aiosqlite

    from backhaul_agent.ledger_rows import Changes


@dataclass(slots=True)
class Lane:
    """A lane's committed state, in one epoch.

    ``next_seq``: the next seq to give out. ``watermark``: what the hub holds without gaps, and
    ``confirmed`` the highest there has been of it: rows up to there may have been forgotten.
    ``steps``: how far the sequences of OUT are ahead of the seqs in it. ``used_seq``: none beyond
    it was ever sent to that stream. ``held_seq``: the first seq that must not leave yet, because
    its stamps wait for the time; 0 where all may.
    """

    id: int
    name: str
    epoch: int
    next_seq: int
    watermark: int
    confirmed: int
    steps: Steps
    used_seq: int
    held_seq: int = 0

    @property
    def ready_seq(self) -> int:
        """Return the highest seq that may leave, as far as all before it may."""
        return self.held_seq - 1 if self.held_seq else self.last_seq

    @property
    def last_seq(self) -> int:
        """Return the highest seq given out, 0 where there is none."""
        return self.next_seq - 1


async def load(db: aiosqlite.Connection, epoch: int, names: Iterable[str]) -> list[Lane]:
    """Read all lanes back; those of the current epoch are made where they are missing.

    Also of a node that is no longer named: what the ledger has of it must still be sent and, asked
    for again, found.
    """
    await db.executemany(
        "INSERT OR IGNORE INTO lanes (name, epoch) VALUES (?, ?)", [(name, epoch) for name in names]
    )
    await db.execute(
        "INSERT OR IGNORE INTO lanes (name, epoch) SELECT DISTINCT name, ? FROM lanes", (epoch,)
    )
    rows = await db.execute_fetchall(
        "SELECT id, name, epoch, max(next_seq, 1 + coalesce((SELECT max(seq) FROM messages "
        "WHERE lane = lanes.id), 0)), watermark, confirmed, stream_created, used_seq FROM lanes"
    )
    steps = await db.execute_fetchall("SELECT * FROM steps ORDER BY lane, from_seq")
    lanes = []
    for id_, name, of, next_seq, watermark, confirmed, created, used_seq in rows:
        known = Steps(created, [Step(*step) for lane_id, *step in steps if lane_id == id_])
        held_seq = await ledger_boots.held(db, id_)
        lanes.append(Lane(id_, name, of, next_seq, watermark, confirmed, known, used_seq, held_seq))
    return lanes


def new_steps(lanes: Mapping[str, Lane], changes: Changes) -> dict[str, tuple[Steps, int]]:
    """Return the steps and the used seq of each lane where they change."""
    new: dict[str, tuple[Steps, int]] = {}
    for name, created, step, fresh in changes.steps:
        steps, used_seq = new.get(name) or (lanes[name].steps, lanes[name].used_seq)
        if fresh:
            steps, used_seq = Steps(), step.from_seq
        new[name] = steps.with_step(created, step), used_seq
    for name, seq in changes.used.items():
        steps, used_seq = new.get(name) or (lanes[name].steps, lanes[name].used_seq)
        new[name] = steps, max(used_seq, seq)
    return new


async def write_steps(db: aiosqlite.Connection, lane: Lane, steps: Steps, used_seq: int) -> None:
    """Write how far the sequences of OUT are ahead of the seqs of a lane."""
    await db.execute(
        "UPDATE lanes SET stream_created = ?, used_seq = ? WHERE id = ?",
        (steps.created, used_seq, lane.id),
    )
    if steps != lane.steps:
        await db.execute("DELETE FROM steps WHERE lane = ?", (lane.id,))
        await db.executemany(
            "INSERT INTO steps VALUES (?, ?, ?)", [(lane.id, *step) for step in steps.steps]
        )
