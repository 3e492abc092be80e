"""Gives a ledger to another device, with all that the hub has not confirmed.

For a machine that had another vehicle's identity, and was enrolled anew: what it holds goes on under the new
one. Its messages have their places in epochs of the old device, where the hub may hold others' (a copied
disk); so all of them get new ones, in one new epoch. It is one transaction: a machine that loses power in
between has the old ledger, whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from backhaul_agent.commit.heads import HUB_NS, STAMP_NS
from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.ingest.replay_book import REPLAYS
from backhaul_agent.ledger.chain import ChainEnd
from backhaul_agent.ledger.eviction_policy import ACCOUNT
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import Outgoing
from backhaul_agent.ledger.schema import draw_epoch
from backhaul_agent.uplink.reconcile import shared
from backhaul_codec import CodecError, chain, hash_of, restamp
from backhaul_codec.kinds import BULK, RESULT
from backhaul_codec.subjects import SubjectError, dictionary_subject, parse_leaf
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary

ROWS = 512  # in memory at a time
_KEPT_META = ("device", "epoch", HUB_NS, STAMP_NS)
# Of all lanes but the new ones; what the hub has confirmed stays with the old device, there.
_OLD = "(SELECT id FROM lanes WHERE epoch != ?1)"
_UNCONFIRMED = (
    "SELECT m.lane, m.seq, m.id, l.name, m.subject, m.body, m.boot FROM messages m JOIN lanes l ON l.id = m.lane "
    "WHERE l.epoch != ? AND m.seq > l.confirmed AND m.subject NOT GLOB 'd.*' AND (m.lane, m.seq) > (?, ?) "
    "ORDER BY m.lane, m.seq LIMIT ?"
)


class Handover(NamedTuple):
    """The result: the former device, the new epoch, how many messages moved, how many did not."""

    former: str
    epoch: int
    moved: int
    left: int
    """What the agent said of the old epochs themselves, results of commands, and what cannot be read."""


def device_of(path: Path) -> str:
    """Return whose ledger a file is, empty where it does not say. Raises: LedgerStorageError."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT value FROM meta WHERE name = 'device'").fetchall()
    except sqlite3.Error as error:
        raise LedgerStorageError(path, "reading", error) from error
    return next((said for (said,) in rows if isinstance(said, str)), "")


def hand_over(path: Path, device: str, lanes: Lanes, random_u32: Callable[[], int]) -> Handover:
    """Give a ledger to `device`.

    The caller holds its lock, and has had it opened by `Ledger.open`: it is sound, and of this schema.

    Raises:
        LedgerStorageError: the disk refused; nothing was changed.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5.0)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            try:
                done = _hand_over(db, device, lanes, random_u32)
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        raise LedgerStorageError(path, "handing over", error) from error
    return done


@dataclass(slots=True)
class _NewLane:
    """A lane of the new epoch, as it grows."""

    id: int
    seq: int = 0
    end: ChainEnd = field(default_factory=ChainEnd)

    def place(self, message: Outgoing, epoch: int) -> bytes:
        """Return a message as it stands at the lane's next seq."""
        self.seq += 1
        if message.boot or self.end.seq != self.seq - 1:
            return restamp(message.body, epoch=epoch, seq=self.seq)  # linked once it may leave
        body = chain(message.body, epoch=epoch, seq=self.seq, link=self.end.hash)
        self.end = ChainEnd(self.seq, hash_of(message.subject, body))
        return body


def _hand_over(
    db: sqlite3.Connection, device: str, lanes: Lanes, random_u32: Callable[[], int]
) -> Handover:
    [(former,)] = db.execute("SELECT value FROM meta WHERE name = 'device'")
    known = {number for (number,) in db.execute("SELECT epoch FROM lanes")}
    epoch = draw_epoch(random_u32, known)
    new: dict[str, _NewLane] = {}
    for name in lanes.names:
        inserted = db.execute("INSERT INTO lanes (name, epoch) VALUES (?, ?)", (name, epoch))
        new[name] = _NewLane(inserted.lastrowid or 0)
    _announce(db, new[BULK], epoch)
    moved = left = 0
    for rows in _unconfirmed(db, epoch):
        changed = []
        for id_, lane, subject, body, boot in rows:
            try:
                message = _addressed(lane, subject, body, boot, lanes)
                if message is None:
                    left += 1
                    continue
                at = new[message.lane]
                stamped = at.place(message, epoch)
            except (CodecError, SubjectError):
                left += 1  # it could not leave under its old name either
                continue
            changed.append((at.id, at.seq, message.subject, stamped, id_))
        db.executemany(
            "UPDATE messages SET lane = ?, seq = ?, subject = ?, body = ? WHERE id = ?", changed
        )
        moved += len(changed)
    for table in ("messages", "steps", "evicted", "chains"):
        db.execute(f"DELETE FROM {table} WHERE lane IN {_OLD}", (epoch,))  # noqa: S608 - constants
    db.execute("DELETE FROM lanes WHERE epoch != ?", (epoch,))
    db.executemany(
        "UPDATE lanes SET next_seq = ? WHERE id = ?", [(at.seq + 1, at.id) for at in new.values()]
    )
    db.executemany("INSERT INTO chains VALUES (?, ?, ?)", [(at.id, *at.end) for at in new.values()])
    # What the hub wanted of the other device is not for this one, nor how far its words were read.
    db.execute("DELETE FROM commands")
    db.execute("DELETE FROM ages")
    db.execute(
        "DELETE FROM meta WHERE name NOT IN (?, ?, ?, ?) AND substr(name, 1, ?) != ?",
        (*_KEPT_META, len(REPLAYS), REPLAYS),
    )
    db.execute("UPDATE meta SET value = ? WHERE name = 'device'", (device,))
    db.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
    return Handover(str(former), epoch, moved, left)


def _announce(db: sqlite3.Connection, bulk: _NewLane, epoch: int) -> None:
    """Let the new epoch begin with the dictionaries: the hub has none of this device's."""
    query = "SELECT digest, coalesce(CAST(body AS BLOB), x'') FROM dictionaries"
    for digest, body in db.execute(query).fetchall():
        if digest != digest_of(body):
            continue  # damaged: nothing can be read with it
        subject = dictionary_subject(digest)
        stamped = bulk.place(Outgoing(BULK, subject, encode_dictionary(body)), epoch)
        db.execute(
            "INSERT INTO messages (lane, seq, subject, body, value_class) VALUES (?, ?, ?, ?, ?)",
            (bulk.id, bulk.seq, subject, stamped, ACCOUNT),
        )
        db.execute(
            "UPDATE dictionaries SET epoch = ?, seq = ?, confirmed = 0 WHERE digest = ?",
            (epoch, bulk.seq, digest),
        )


def _unconfirmed(
    db: sqlite3.Connection, epoch: int
) -> Iterator[Sequence[tuple[int, str, str, bytes, int]]]:
    """Yield messages that the hub may not hold, in the order of epochs, lane by lane: `ROWS` at a time."""
    lane_id, seq = 0, 0
    while rows := db.execute(_UNCONFIRMED, (epoch, lane_id, seq, ROWS)).fetchall():
        lane_id, seq = rows[-1][:2]
        yield [row[2:] for row in rows]


def _addressed(lane: str, subject: str, body: bytes, boot: int, lanes: Lanes) -> Outgoing | None:
    """Return a message with its lane and subject now; None for one about the old device's affairs."""
    found = parse_leaf(subject)
    if found.system or found.kind is RESULT:
        return None
    home, subject = shared(lane, subject)
    return lanes.place(Outgoing(home, subject, body, boot=boot))
