"""Whether what a former epoch's lane still owes is at the hub: message by message, by their hashes.

Usually the hub's watermark says it: its hash is that of the ledger's own message there. It says nothing
where somebody else wrote in the epoch as well (a cloned disk, a copy of the ledger that was put back): then
the hub holds seqs that are another's. So once all that was appended of the epoch is at the hub, the agent
asks for the hash of each message that it is not sure of. What is at the hub is confirmed. Where the hub
holds another message in its place, it goes into the current epoch as a new one, in one transaction with its
end in the old one. Where the hub holds none, it is appended again in its place: the hub may have lost it
after the history had taken it, another machine may have a copy of it, and by its place it is known again.
Pure: the answers come in, what is to be asked and written goes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.ledger_rows import Evicted, Inward, Outgoing
from backhaul_codec import hash_of
from backhaul_codec.subjects import BULK, LIVE, node_of_lane, parse_leaf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_agent.ledger_lanes import Lane
    from backhaul_agent.ledger_rows import OwnRow

ASK_ROWS = 512
MOVED = "moved into a newer epoch: the hub holds another message in this place"


class HashQuestion(NamedTuple):
    """Which hashes are asked for: of a lane's seqs ``lo`` to ``hi``."""

    lane: str
    epoch: int
    lo: int
    hi: int


class Verdicts(NamedTuple):
    """What follows from an answer: what to write, and up to which seq all is settled."""

    changes: Inward
    settled_seq: int
    moved: int
    again: list[tuple[int, int]]
    """Ranges of seqs of which the hub holds nothing: they are to be appended again in their places."""


def question_of(lane: Lane, rows: Sequence[OwnRow]) -> HashQuestion:
    """Return what to ask about messages of a lane."""
    return HashQuestion(lane.name, lane.epoch, rows[0].seq, rows[-1].seq)


def judge(lane: Lane, rows: Sequence[OwnRow], lo: int, hashes: Sequence[str | None]) -> Verdicts:
    """Return what is to be done about messages, by what the hub says of their seqs.

    Args:
        lane: theirs.
        rows: of the ledger, those that were asked about.
        lo: the first seq that was asked about.
        hashes: for each seq from ``lo`` on: in hex, "" where the hub holds a message and can read it no
            more, None where it holds none.
    """
    changes = Inward()
    moved: list[OwnRow] = []
    again: list[int] = []
    for row in rows:
        at = row.seq - lo
        held = hashes[at] if 0 <= at < len(hashes) else None
        if held in ("", hash_of(row.subject, row.body).hex()):
            continue
        if held is None:
            # In its own place it cannot stand twice, whoever else has a copy of it.
            again.append(row.seq)
            continue
        moved.append(row)
        if not _is_housekeeping(row.subject):
            times = None if row.t_lo is None or row.t_hi is None else (row.t_lo, row.t_hi)
            home, subject = shared(lane.name, row.subject)
            changes.messages.append(Outgoing(home, subject, row.body, row.value_class, times))
    changes.evict = [row.id for row in moved]
    changes.evicted = [
        Evicted(lane.id, low, high, MOVED) for low, high in _ranges([row.seq for row in moved])
    ]
    return Verdicts(changes, rows[-1].seq, len(moved), _ranges(again))


def _is_housekeeping(subject: str) -> bool:
    """Whether a message speaks of the epoch that it is in: in another it would say what is not so."""
    return parse_leaf(subject).system


def shared(lane: str, subject: str) -> tuple[str, str]:
    """Return the shared lane and the subject of a message: `Lanes.place` gives it to its node's again."""
    if node_of_lane(lane) is not None:
        _, _, subject = subject.split(".", 2)
        lane = BULK if subject.startswith("f.") else LIVE
    return lane, subject


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return found
