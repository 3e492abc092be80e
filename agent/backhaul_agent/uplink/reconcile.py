"""Whether the messages that a former epoch's lane still owes are at the hub: one by one, by their hashes.

Usually the hub's watermark says it: its hash is that of the ledger's own message there. It says nothing
where somebody else wrote in the epoch as well (a cloned disk, a copy of the ledger that was put back): then
the hub holds seqs that are another's. So once all that was appended of the epoch is at the hub, the agent
asks for the hash of each message that it is not sure of. What is at the hub is confirmed. Where the hub
holds another message in its place, it goes to the same seq of a *spare epoch*, in one transaction with its
end in the old one. Which epoch that is follows from the old one alone, and its bytes there from what it says
and from its place: so every copy of the message, on whichever machine, goes to the same place with the same
bytes, and is known there as the same. Where another message has that place too, it goes on to the spare epoch
of that one. Where the hub holds none, it is appended again in its place: the hub may have lost it
after the history had taken it, another machine may have a copy of it, and by its place it is known again.
Pure: the answers come in, what is to be asked and written goes out.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.ledger.rows import Adopted, Evicted, Inward
from backhaul_codec import CodecError, chain, hash_of
from backhaul_codec.protocol.words import spare_of
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import lane_of, node_of_lane, parse_leaf, shared_subject
from backhaul_codec.wire.envelope import NO_LINK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.ledger.rows import OwnRow

ASK_ROWS = 512
MOVED = "moved into a newer epoch: the hub holds another message in this place"


class HashQuestion(NamedTuple):
    """Which hashes are asked for: of a lane's seqs ``lo`` to ``hi``."""

    lane: str
    epoch: int
    lo: int
    hi: int


class Verdicts(NamedTuple):
    """The consequence of an answer: the writes, and up to which seq all is settled."""

    changes: Inward
    settled_seq: int
    moved: int
    again: list[tuple[int, int]]
    """Ranges of seqs of which the hub holds nothing: they are to be appended again in their places."""
    unused: Sequence[tuple[int, int]] = ()
    """Ranges of seqs of the spare epoch, below what was moved there, that nothing was moved to."""
    later: int = 0
    """How many messages wait for what this ledger has in their places of the spare epoch to be settled."""


class Spare(NamedTuple):
    """The ledger's part of the spare epoch: how far, how far it is settled, and its messages by seq."""

    last_seq: int = 0
    confirmed: int = 0
    rows: Mapping[int, OwnRow] = MappingProxyType({})


def question_of(lane: CommittedLane, rows: Sequence[OwnRow]) -> HashQuestion:
    """Return the question about messages of a lane."""
    return HashQuestion(lane.name, lane.epoch, rows[0].seq, rows[-1].seq)


def judge(
    lane: CommittedLane,
    rows: Sequence[OwnRow],
    lo: int,
    hashes: Sequence[str | None],
    spare: Spare = Spare(),  # noqa: B008 - it is frozen
) -> Verdicts:
    """Return the writes for messages, by the hub's hashes of their seqs.

    Args:
        lane: theirs.
        rows: of the ledger, those that were asked about.
        lo: the first seq that was asked about.
        hashes: for each seq from ``lo`` on: in hex, "" where the hub holds a message and can read it no
            more, None where it holds none.
        spare: what this ledger has where they may go.
    """
    changes, into = Inward(), spare_of(lane.epoch)
    moved: list[OwnRow] = []
    there: list[OwnRow] = []
    again: list[int] = []
    later = 0
    for row in rows:
        at = row.seq - lo
        held = hashes[at] if 0 <= at < len(hashes) else None
        if held in ("", hash_of(row.subject, row.body).hex()):
            continue
        if held is None:
            # In its own place it cannot stand twice, whoever else has a copy of it.
            again.append(row.seq)
            continue
        if _is_housekeeping(row.subject):
            moved.append(row)
            continue
        # Nobody knows what stands before it there: by the link alone copies would differ.
        try:
            body = chain(row.body, epoch=into, seq=row.seq, link=NO_LINK)
        except CodecError:
            again.append(row.seq)  # damaged: set aside, as it cannot leave either
            continue
        known = spare.rows.get(row.seq)
        if known is None:
            moved.append(row)
            there.append(row._replace(body=body))
        elif (known.subject, known.body) == (row.subject, body):
            moved.append(row)
        else:
            # Another message of this ledger is on its way to that place. Once it stands there it may be
            # forgotten, and this one finds the place taken.
            later += 1
            if row.seq <= spare.confirmed:
                changes.evict.append(known.id)
    changes.evict += [row.id for row in moved]
    changes.evicted = [
        Evicted(lane.id, low, high, MOVED) for low, high in _ranges([row.seq for row in moved])
    ]
    unused: list[tuple[int, int]] = []
    if there:
        changes.adopted = [Adopted(lane.name, into, there)]
        used = RangeSet((row.seq, row.seq) for row in there)
        unused = used.holes(spare.last_seq + 1, there[-1].seq)
    return Verdicts(changes, rows[-1].seq, len(moved), _ranges(again), unused, later)


def _is_housekeeping(subject: str) -> bool:
    """Whether a message speaks of its own epoch: in another it would be untrue."""
    return parse_leaf(subject).system


def shared(lane: str, subject: str) -> tuple[str, str]:
    """Return the shared lane and the subject of a message: `Lanes.place` gives it to its node's again."""
    if node_of_lane(lane) is not None:
        subject = shared_subject(subject)
        lane = lane_of(subject)
    return lane, subject


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return found
