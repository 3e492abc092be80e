"""The lanes of a ledger: the knowledge of each, in this epoch and in former ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import aiosqlite

from backhaul_agent.ledger import boots as ledger_boots
from backhaul_agent.ledger.chain import UNCHAINED, ChainEnd
from backhaul_agent.ledger.rows import Adopted, LedgerChanges
from backhaul_agent.ledger.sequence_offsets import OffsetStep, SequenceOffsets
from backhaul_codec import hash_of

EPOCHS_KEPT = 32  # former epochs whose lanes are kept though the hub holds all of them


@dataclass(slots=True)
class CommittedLane:
    """A lane's committed state, in one epoch.

    ``next_seq``: the next seq to give out. ``watermark``: what the hub holds without gaps, and
    ``confirmed`` the highest there has been of it: rows up to there may have been forgotten.
    ``steps``: how far the sequences of OUT are ahead of the seqs in it. ``used_seq``: none beyond
    it was ever sent to that stream. ``held_seq``: the first seq that must not leave yet, because
    its stamps wait for the time; 0 where all may. ``chain``: up to where its messages are linked.
    """

    id: int
    name: str
    epoch: int
    next_seq: int = 1
    watermark: int = 0
    confirmed: int = 0
    steps: SequenceOffsets = field(default_factory=SequenceOffsets)
    used_seq: int = 0
    held_seq: int = 0
    chain: ChainEnd = UNCHAINED

    @property
    def ready_seq(self) -> int:
        """Return the highest seq that may leave, as far as all before it may."""
        return min(self.held_seq - 1 if self.held_seq else self.last_seq, self.chain.seq)

    @property
    def last_seq(self) -> int:
        """Return the highest seq given out, 0 where there is none."""
        return self.next_seq - 1

    @property
    def whole(self) -> bool:
        """Whether the hub holds all of it."""
        return self.watermark >= self.last_seq


async def load(db: aiosqlite.Connection, epoch: int, names: Iterable[str]) -> list[CommittedLane]:
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
        "WHERE lane = lanes.id), 0)), coalesce(CAST(watermark AS INTEGER), 0), "
        "coalesce(CAST(confirmed AS INTEGER), 0), stream_created, used_seq FROM lanes"
    )
    steps = await db.execute_fetchall("SELECT * FROM steps ORDER BY lane, from_seq")
    lanes = []
    for id_, name, of, next_seq, watermark, confirmed, created, used_seq in rows:
        known = SequenceOffsets(
            created, [OffsetStep(*step) for lane_id, *step in steps if lane_id == id_]
        )
        held_seq = await ledger_boots.held(db, id_)
        lanes.append(
            CommittedLane(id_, name, of, next_seq, watermark, confirmed, known, used_seq, held_seq)
        )
    return lanes


class NewSteps(NamedTuple):
    """The record of a lane's stream."""

    lane: CommittedLane
    steps: SequenceOffsets
    used_seq: int


def new_steps(
    find: Callable[[str, int], CommittedLane | None], changes: LedgerChanges
) -> list[NewSteps]:
    """Return the steps and the used seq of each lane where they change.

    ``find`` returns a lane by name and epoch, 0 for the current one.
    """
    new: dict[int, NewSteps] = {}
    for name, created, step, fresh, epoch in changes.steps:
        if (lane := find(name, epoch)) is None:
            continue  # of an epoch that was dropped
        _, steps, used_seq = new.get(lane.id, NewSteps(lane, lane.steps, lane.used_seq))
        if fresh:
            # All of a former epoch counts as sent: nobody notes any more how far that goes.
            former = lane is not find(name, 0)
            steps, used_seq = SequenceOffsets(), lane.last_seq if former else step.from_seq
        new[lane.id] = NewSteps(lane, steps.with_step(created, step), used_seq)
    for name, seq in changes.used.items():
        if (lane := find(name, 0)) is not None:
            _, steps, used_seq = new.get(lane.id, NewSteps(lane, lane.steps, lane.used_seq))
            new[lane.id] = NewSteps(lane, steps, max(used_seq, seq))
    return list(new.values())


async def write_steps(db: aiosqlite.Connection, new: NewSteps) -> None:
    """Write how far the sequences of OUT are ahead of the seqs of a lane."""
    lane, steps, used_seq = new
    await db.execute(
        "UPDATE lanes SET stream_created = ?, used_seq = ? WHERE id = ?",
        (steps.created, used_seq, lane.id),
    )
    if steps != lane.steps:
        await db.execute("DELETE FROM steps WHERE lane = ?", (lane.id,))
        await db.executemany(
            "INSERT INTO steps VALUES (?, ?, ?)", [(lane.id, *step) for step in steps.steps]
        )


def opened(lanes: Iterable[CommittedLane], epoch: int, after_id: int) -> dict[str, CommittedLane]:
    """Return lanes of a new epoch in place of ``lanes``; their ids come after ``after_id``."""
    names = (lane.name for lane in lanes)
    return {name: CommittedLane(after_id + n, name, epoch) for n, name in enumerate(names, 1)}


async def open_epoch(
    db: aiosqlite.Connection,
    former: Iterable[CommittedLane],
    lanes: Iterable[CommittedLane],
    epoch: int,
) -> None:
    """Begin a new epoch: ``former`` lanes are closed, ``lanes`` take their place.

    Nobody will record any more how far the closed ones were sent, so all of them counts as sent.
    """
    await db.execute("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (epoch,))
    await db.executemany(
        "UPDATE lanes SET used_seq = ? WHERE id = ?", [(each.last_seq, each.id) for each in former]
    )
    await db.executemany(
        "INSERT INTO lanes (id, name, epoch) VALUES (?, ?, ?)",
        [(lane.id, lane.name, lane.epoch) for lane in lanes],
    )


def entered(
    find: Callable[[str, int], CommittedLane | None], last_id: int, adopted: Iterable[Adopted]
) -> list[CommittedLane]:
    """Return the lanes of `adopted` as they are with its messages; new ones get ids behind ``last_id``."""
    lanes: dict[tuple[str, int], CommittedLane] = {}
    for name, epoch, rows in adopted:
        place, before, last = (name, epoch), rows[0].seq - 1, rows[-1]
        lane = lanes.get(place) or find(name, epoch)
        if lane is None:
            last_id += 1
            lane = CommittedLane(last_id, name, epoch, watermark=before, confirmed=before)
        end = lane.chain
        if last.seq >= end.seq:
            end = ChainEnd(last.seq, hash_of(last.subject, last.body))
        next_seq = max(lane.next_seq, last.seq + 1)
        lanes[place] = replace(
            lane,
            next_seq=next_seq,
            used_seq=next_seq - 1,
            chain=end,
            watermark=min(lane.watermark, before),
            confirmed=min(lane.confirmed, before),
        )
    return list(lanes.values())


async def enter(db: aiosqlite.Connection, lanes: Iterable[CommittedLane]) -> None:
    """Write lanes of former epochs that have grown, or were not known."""
    await db.executemany(
        "INSERT INTO lanes (id, name, epoch, next_seq, watermark, confirmed, used_seq) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "next_seq = excluded.next_seq, used_seq = excluded.used_seq, "
        "watermark = excluded.watermark, confirmed = excluded.confirmed",
        [(e.id, e.name, e.epoch, e.next_seq, e.watermark, e.confirmed, e.used_seq) for e in lanes],
    )


async def drop(db: aiosqlite.Connection, lanes: Iterable[CommittedLane]) -> None:
    """Forget closed lanes altogether, with the rest of their rows."""
    ids = [(lane.id,) for lane in lanes]
    for table in ("messages", "steps", "evicted", "chains"):
        await db.executemany(f"DELETE FROM {table} WHERE lane = ?", ids)  # noqa: S608 - constants
    await db.executemany("DELETE FROM lanes WHERE id = ?", ids)


def droppable(closed: Mapping[tuple[str, int], CommittedLane]) -> list[CommittedLane]:
    """Return the lanes of the oldest former epochs that the hub holds all of, but for the last few.

    Their rows stay for a while, like all that the hub holds: it may lose some, and ask.
    """
    epochs = dict.fromkeys(lane.epoch for lane in sorted(closed.values(), key=lambda each: each.id))
    surplus = set(list(epochs)[:-EPOCHS_KEPT])
    held = {e for e in surplus if all(lane.whole for lane in closed.values() if lane.epoch == e)}
    return [lane for lane in closed.values() if lane.epoch in held]
