"""Staged rows of former runs, until it is known that their points have not been sent: pure, no I/O.

A staged row is acknowledged points that no message holds yet. In a ledger that was put back from an
old copy, those points may have been framed and sent since the copy was taken, under seqs that this
ledger has never given out: framed again they would arrive twice. So while nobody has said that the
ledger is the newest (see `epochs`), rows that were there at the start are left alone. Then

- nobody knows more of their epoch than the ledger: they are framed as ever
- somebody does, and all that the ledger lacks stands in OUT: points found there are dropped, the
  others are framed
- somebody does, and OUT lacks some of it: they may have been sent or not. They are set aside, for a
  person to judge, and an event tells the hub
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backhaul_agent.commit.contents import Points
from backhaul_agent.commit.framer import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backhaul_agent.ledger.rows import StagedRow
    from backhaul_codec import Point

SUSPECTS = "suspects"  # in the ledger's meta table
NO_SUSPECTS = "[]"


class Former(msgspec.Struct):
    """An epoch that ended with rows staged: up to which id, and where its lanes ended.

    ``taken_in``: by lane and epoch, the first and the last seq that this ledger did not give out, but found in
    OUT. OUT may be emptied since, and of these messages the ledger took in only those that the hub lacked.
    """

    epoch: int
    last_id: int
    last_seqs: dict[str, int]
    taken_in: dict[str, dict[int, tuple[int, int]]] = {}

    def note_taken_in(self, lane: str, epoch: int, first_seq: int, last_seq: int) -> None:
        """Note that OUT held these messages, which the ledger did not send itself."""
        noted = self.taken_in.setdefault(lane, {})
        first, last = noted.get(epoch, (first_seq, last_seq))
        noted[epoch] = (min(first, first_seq), max(last, last_seq))


class Sent(NamedTuple):
    """Ids of rows of which points were sent, and points of them that were not: staged anew."""

    ids: list[int]
    rest: list[Points]


class _Suspect(NamedTuple):
    former: Former
    row: StagedRow
    points: list[Point]


class UnconfirmedRows:
    """The rows of which it is not known, by the epoch in which they were staged."""

    def __init__(self) -> None:
        self._suspects: list[_Suspect] = []
        self._cleared: list[tuple[StagedRow, list[Point]]] = []
        self._sent = Sent([], [])

    @property
    def points(self) -> int:
        """Return how many points are under suspicion."""
        return sum(len(each.points) for each in self._suspects)

    @property
    def news(self) -> bool:
        """Whether a judgement waits to be carried out."""
        return bool(self._cleared or self._sent.ids)

    def of(self, epoch: int) -> bool:
        """Whether any row is suspected of an epoch."""
        return any(each.former.epoch == epoch for each in self._suspects)

    @property
    def formers(self) -> list[Former]:
        """Return the epochs that some rows are suspected of, the oldest first."""
        return list({each.former.epoch: each.former for each in self._suspects}.values())

    def restore(
        self,
        rows: Iterable[StagedRow],
        epoch: int,
        last_seqs: dict[str, int],
        meta: Mapping[str, str | int],
    ) -> list[StagedRow]:
        """Take in the rows found at the start, and where the current epoch ends.

        Returns those that are damaged.
        """
        rows = list(rows)
        formers = _read(str(meta.get(SUSPECTS, "")))
        formers.append(Former(epoch, max((row.id for row in rows), default=0), last_seqs))
        damaged = []
        for row in rows:
            points = _unpacked(row)
            if points is None:
                damaged.append(row)
                continue
            former = next(each for each in formers if row.id <= each.last_id)
            self._suspects.append(_Suspect(former, row, points))
        return damaged

    def meta(self) -> dict[str, str | int]:
        """Return what the ledger must remember of this, by name; for as long as it has such rows."""
        return {SUSPECTS: msgspec.json.encode(self.formers).decode()}

    def clear(self, epoch: int) -> None:
        """Take in that nobody knows more of an epoch than the ledger."""
        for each in self._take(epoch):
            self._cleared.append((each.row, each.points))

    def compare(self, epoch: int, sent: Iterable[Point]) -> int:
        """Take in all that was sent of an epoch beyond the ledger; return how many points were."""
        keys = {_key(point) for point in sent}
        dropped = 0
        for each in self._take(epoch):
            row, points = each.row, [point for point in each.points if _key(point) not in keys]
            if len(points) == len(each.points):
                self._cleared.append((row, points))
                continue
            dropped += len(each.points) - len(points)
            self._sent.ids.append(row.id)
            if points:
                self._sent.rest.append(Points(row.node, points, clock=row.clock))
        return dropped

    def give_up(self, epoch: int) -> list[StagedRow]:
        """Return the rows of an epoch, to be set aside."""
        return [each.row for each in self._take(epoch)]

    def marked(self, epoch: int) -> bool:
        """Whether stamps in rows of an epoch wait for the time: those cannot be compared."""
        return any(each.row.boot for each in self._suspects if each.former.epoch == epoch)

    def take_cleared(self) -> list[tuple[StagedRow, list[Point]]]:
        """Return rows that may be framed from now on, with their points, once."""
        cleared, self._cleared = self._cleared, []
        return cleared

    def take_sent(self) -> Sent:
        """Return what is to be done about rows whose points were sent, once."""
        sent, self._sent = self._sent, Sent([], [])
        return sent

    def put_back(self, sent: Sent) -> None:
        """Take back what could not be done."""
        self._sent = Sent(sent.ids + self._sent.ids, sent.rest + self._sent.rest)

    def _take(self, epoch: int) -> list[_Suspect]:
        taken = [each for each in self._suspects if each.former.epoch == epoch]
        self._suspects = [each for each in self._suspects if each.former.epoch != epoch]
        return taken


def _key(point: Point) -> tuple[object, ...]:
    # repr: a value that is no number equals itself here.
    return (point.node, point.type, point.key, point.time, repr(point.value), point.tombstone)


def _read(text: str) -> list[Former]:
    try:
        return msgspec.json.decode(text, type=list[Former])
    except msgspec.DecodeError:
        return []


def _unpacked(row: StagedRow) -> list[Point] | None:
    if not row.intact:
        return None
    try:
        return unpack(row.node, row.body)
    except msgspec.DecodeError:
        return None
