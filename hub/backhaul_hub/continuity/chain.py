"""Whether a lane's held messages are one history: each message carries the hash of the one before it.

Pure. Kept are the hashes at the ends of what is held, and no other: where two stretches meet, the link of
the upper one must be the hash of the lower one's last message. Where it is not, or where a message comes
again with another content, two machines have written in one epoch (docs/continuity.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import msgspec

from backhaul_codec.ranges import RangeSet
from backhaul_codec.wire.envelope import NO_LINK

INNER_ENDS_MAX = 512
"""So many hashes are kept, whatever receipts say; those of ends that messages may come to are kept besides."""


class Fork(IntEnum):
    """The word to a vehicle on an epoch, besides how far it is held."""

    NONE = 0
    OVER = 1
    """Somebody has said that this epoch is over: whoever is still in it begins another."""
    FORKED = 2
    """Two histories of it have been seen."""
    UNPROVEN = 3
    """A receipt leaves it open whether what is behind it is of the same history: it would stand still there."""


class Watermark(NamedTuple):
    """The word to a vehicle on a lane: up to where all is held, the hash there, and of a fork."""

    seq: int
    hash: bytes = b""
    fork: Fork = Fork.NONE

    def words(self) -> dict[str, int | str]:
        """Return it as `s.watermark` says it."""
        fork = {"fork": int(self.fork)} if self.fork else {}
        return {"seq": self.seq, "hash": self.hash.hex(), **fork}

    def row(self) -> tuple[int, str, int]:
        """Return it as `s.held` says it, of one epoch of several."""
        return self.seq, self.hash.hex(), int(self.fork)


@dataclass(slots=True)
class Chain:
    """The ends of one lane's stretches in one epoch."""

    ends: dict[int, bytes] = field(default_factory=dict)
    """Of each stretch: the seq of its last message, and that one's hash; also as a receipt says it of
    the last seq that it stands for."""
    starts: dict[int, bytes] = field(default_factory=dict)
    """Of each stretch: the seq of its first message, and that one's link. None stands for seq 1."""
    vague: RangeSet = field(default_factory=RangeSet)
    """What receipts stand for that do not say the hash behind them."""
    parted: int = 0
    """The lowest seq whose message does not link to the one before it; 0: there is none."""
    parted_hash: bytes = b""
    """The hash of the message before that."""
    forked: bool = False
    """Whether two histories have been seen."""
    since: int = 0
    """The lowest seq at which another history begins that links to what is held below; 1 where that is
    not known of one; 0: nobody has looked."""

    @property
    def forked_from(self) -> int:
        """Return the seq from which on two machines may have written, 0 for none: never too high.

        What parts the chain comes after the fork: whose messages lie below it is not known. What comes again
        may come late: the first of another machine's messages may never have come.
        """
        return (self.since or 1) if self.forked else 0

    def fork(self, since: int = 0) -> None:
        """Take in that there are two histories. `since`: see there; 0 where this says nothing of it."""
        self.forked = True
        if since:
            self.since = min(since, self.since or since)

    def add(
        self, seq: int, link: bytes, own: bytes, held: RangeSet, *, known: bool = False
    ) -> None:
        """Take in a message that was not held; `held` has it already.

        Args:
            seq: of the message.
            link: the hash of the message before it; empty in version 1.
            own: its hash; empty where it is not known.
            held: all seqs that are held.
            known: it goes on a run of repeats (see continuity/repeats.py), by which its history is judged.
        """
        below, above = self.ends.get(seq - 1, b""), self.starts.pop(seq + 1, b"")
        # What a receipt says stays: UP may lose the message behind it, and get it again.
        if seq - 1 in held:
            self.ends.pop(seq - 1, None)
        explained = self.ends.pop(seq, b"")
        if _differ(below, link):
            self._part(seq, below, since=0 if known else 1)
        if _differ(own, above) or _differ(own, explained):
            self._part(seq + 1, own)
        if own and seq + 1 not in held:
            self.ends[seq] = own
        if link and seq > 1 and seq - 1 not in held:
            self.starts[seq] = link

    def goes_on(self, seq: int, link: bytes, own: bytes) -> bool:
        """Take in a message as `add` does, if it links to the last message held, and the hash of that one is known.

        Nearly every message does. False: nothing was taken in. `seq - 1` is held, and nothing above it.
        """
        if not (link and own) or self.ends.get(seq - 1) != link or seq in self.ends:
            return False
        del self.ends[seq - 1]
        self.ends[seq] = own
        return True

    def repeat(self, seq: int, own: bytes) -> bool:
        """Take in a message that is held already; return whether somebody is to compare it with that one."""
        known = self.ends.get(seq)
        if known and own and known != own:
            self.forked = True
        return bool(own) and known != own and self.since != 1

    def explain(
        self, low: int, high: int, behind: bytes, held: RangeSet, explained: RangeSet
    ) -> None:
        """Take in that `low` to `high` will not come. `behind`: the link of the message behind them.

        `explained`: all that is, with these.
        """
        if behind in (b"", NO_LINK):
            self.vague.add(low, high)
            return
        if self.vague:
            known = RangeSet([(low, high)])
            self.vague = RangeSet(h for part in self.vague for h in known.holes(*part))
        if high in held:
            return
        if _differ(behind, self.starts.get(high + 1, b"")):
            self._part(high + 1, behind)
        self.ends[high] = behind
        if len(self.ends) > INNER_ENDS_MAX:
            self._thin(held, explained)

    def _thin(self, held: RangeSet, explained: RangeSet) -> None:
        """Forget receipts' hashes of places amid those that they stand for, but for the highest of these.

        An agent whose ledger is full says one after the other for as long as it is offline, and of many
        nothing ever comes.
        """
        inner = [
            seq
            for seq in self.ends
            if seq not in held
            and seq + 1 in explained
            and seq + 1 not in held
            and seq + 1 not in self.vague
        ]
        for seq in sorted(inner)[: max(0, len(inner) - INNER_ENDS_MAX // 2)]:
            del self.ends[seq]

    def forget(self, held: RangeSet, explained: RangeSet) -> None:
        """Take in that less is held: the hashes at the new ends are not known."""
        self.ends = {
            seq: known
            for seq, known in self.ends.items()
            if (seq + 1 not in held if seq in held else seq in explained)
        }
        self.starts = {s: h for s, h in self.starts.items() if s in held and s - 1 not in held}

    def proven(self, watermark: int) -> tuple[int, bytes]:
        """Return how far up to `watermark` all is one history, and the hash there (empty: not known).

        A receipt without a hash stands between two stretches of which nobody knows whether they are of
        one history, where the upper one begins with a link. Messages of version 1 have none: of them no
        more is known than that they came, and that counts as it always did.
        """
        seq, known = watermark, self.ends.get(watermark, b"") if watermark else NO_LINK
        if self.parted and seq >= self.parted:
            seq, known = self.parted - 1, self.parted_hash
        if self.vague:
            doubtful = (s for s in self.starts if s - 1 <= seq and s - 1 in self.vague)
            if start := min((s for s in doubtful if self.starts[s] != NO_LINK), default=0):
                seq = next(low for low, high in self.vague if start - 1 <= high) - 1
                known = self.ends.get(seq, b"") if seq else NO_LINK
        return seq, known

    def _part(self, seq: int, below: bytes, *, since: int = 1) -> None:
        self.fork(since)
        if not self.parted or seq < self.parted:
            self.parted, self.parted_hash = seq, below


class _Row(msgspec.Struct, omit_defaults=True):
    ends: dict[int, str] = {}
    starts: dict[int, str] = {}
    vague: list[tuple[int, int]] = []
    parted: int = 0
    parted_hash: str = ""
    forked: bool = False
    since: int = 0


def to_text(chain: Chain) -> str:
    """Return a chain as hub.db stores it."""
    if len(chain.ends) == 1 and not (chain.starts or chain.vague or chain.parted or chain.forked):
        [(seq, known)] = chain.ends.items()  # nearly every one, each time its lane goes on
        return f'{{"ends":{{"{seq}":"{known.hex()}"}}}}'
    row = _Row(
        {seq: known.hex() for seq, known in chain.ends.items()},
        {seq: known.hex() for seq, known in chain.starts.items()},
        list(chain.vague),
        chain.parted,
        chain.parted_hash.hex(),
        chain.forked,
        chain.since,
    )
    return msgspec.json.encode(row).decode()


def from_text(text: str) -> Chain:
    """Return a chain as it was stored; empty text is one of which nothing is known."""
    row = msgspec.json.decode(text or "{}", type=_Row)
    return Chain(
        {seq: bytes.fromhex(known) for seq, known in row.ends.items()},
        {seq: bytes.fromhex(known) for seq, known in row.starts.items()},
        RangeSet(row.vague),
        row.parted,
        bytes.fromhex(row.parted_hash),
        row.forked,
        row.since,
    )


def _differ(own: bytes, link: bytes) -> bool:
    """Whether a message's hash and the link of the next are known, and not the same."""
    return bool(own) and link not in (b"", NO_LINK) and own != link
