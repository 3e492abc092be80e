"""What the writer asks before it commits: may it, under which epoch, and which staged rows go along.

Between the writer and the pure judges, `epochs` of the epoch and `commit.unconfirmed_rows` of staged rows.
"""

from __future__ import annotations

from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.commit.epochs import Epochs, Verdict
from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant
from backhaul_agent.commit.unconfirmed_rows import NO_SUSPECTS, SUSPECTS, Sent, UnconfirmedRows
from backhaul_agent.ledger.rows import Opening
from backhaul_agent.ledger.schema import draw_epoch
from backhaul_agent.ledger.system_events import epoch_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.errors import RefusedError
    from backhaul_agent.hub_time.hub_clock import HubClock
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerChanges, Outgoing, StagedRow

STRANGER = "OUT holds messages of it, and the ledger does not know it"
log = structlog.get_logger("epochs")


class EpochGate(CommitParticipant):
    """The epoch of one ledger. Only the commit task calls `open` and `opened`.

    Without a judge the epoch goes on: tools that write a ledger are not a vehicle.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: HubClock,
        epochs: Epochs | None = None,
        random_u32: Callable[[], int] | None = None,
    ) -> None:
        self.epochs = epochs or Epochs(fresh=True, lanes=(), last_seq=ledger.last_seq)
        self.unconfirmed = UnconfirmedRows()
        self._sent = Sent([], [])
        self.over: set[int] = set()
        """Epochs of other ledgers of which the hub knows that they are over, or is about to be told."""
        self._ledger = ledger
        self._clock = clock
        self._random_u32 = random_u32 or partial(SystemRandom().getrandbits, 32)

    async def restore(self) -> list[StagedRow]:
        """Take staged rows in, under suspicion; return those that are damaged.

        Raises:
            LedgerStorageError: the ledger cannot be read.
        """
        ledger = self._ledger
        last_seqs = {name: lane.last_seq for name, lane in ledger.lanes.items()}
        owed = {lane.epoch for lane in ledger.closed.values() if not lane.whole}
        self.epochs.former = len(owed)
        rows = await ledger.staged()
        return self.unconfirmed.restore(rows, ledger.epoch, last_seqs, ledger.meta)

    @property
    def waiting(self) -> bool:
        """Whether it is not decided under which epoch to commit."""
        return self.epochs.verdict is Verdict.WAITING

    def due_s(self) -> float | None:
        """Return that an epoch is to begin, or staged rows are to be framed or dropped."""
        due = self.epochs.verdict is Verdict.OVER or self.unconfirmed.news
        if due or (not self.waiting and self.unconfirmed.of(self._ledger.epoch)):
            return AT_ONCE_S
        return None

    def holds(self, now_s: float, *, pressed: bool) -> bool:
        """Whether it is not decided yet under which epoch to commit."""
        return not self.epochs.may_commit(now_s, urgent=pressed)

    def holds_until_s(self) -> float | None:
        """Return when it is decided at the latest."""
        return self.epochs.due_s()

    def contribute(self, draft: Draft) -> None:
        """Let staged rows that are no suspects (any more) be framed; open an epoch if one is over."""
        if self.epochs.verdict is Verdict.GOES_ON:
            self.unconfirmed.clear(self._ledger.epoch)
        draft.cleared = self.unconfirmed.take_cleared()
        self._sent = self.unconfirmed.take_sent()
        draft.contents += self._sent.rest
        draft.changes.unstage += self._sent.ids
        self.open(draft.changes)

    def committed(self, draft: Draft) -> None:
        """Take in the epoch that has begun."""
        self.opened(draft.changes)

    def put_back(self, refusal: RefusedError) -> None:
        """Take back the judgement that could not be carried out; rows that were cleared stay so."""
        self.unconfirmed.put_back(self._sent)

    def end(self, epoch: int) -> list[Outgoing]:
        """Return the word that the epoch of a ledger that is lost is over; none where it needs no word.

        The caller has it written before it waits for anything.
        """
        if epoch in self.over or epoch in self._ledger.epochs:
            return []
        self.over.add(epoch)
        return [epoch_event(epoch, self._ledger.epoch, {}, STRANGER, self._clock.now_ns())]

    def open(self, changes: LedgerChanges) -> None:
        """Let a new epoch begin with ``changes`` if the one there was is over."""
        judged = self.unconfirmed.meta()  # of which epoch they are must be known from then on
        if self._ledger.meta.get(SUSPECTS, NO_SUSPECTS) != judged[SUSPECTS]:
            changes.meta |= judged
        if self.epochs.verdict is Verdict.OVER:
            new = draw_epoch(self._random_u32, self._ledger.epochs)
            word = partial(_word, new, self.epochs.why, self._clock.now_ns(), self._clock.mark)
            changes.opening = Opening(new, word)

    def opened(self, changes: LedgerChanges) -> bool:
        """Take in that ``changes`` are durable; return whether an epoch began with them."""
        if changes.opening is None:
            return False
        log.warning("epoch_begun", epoch=self._ledger.epoch, why=self.epochs.why)
        self.epochs.opened()
        return True


def _word(
    new: int, why: str, time_ns: int, boot: int, old: int, last_seqs: dict[str, int]
) -> Outgoing:
    return epoch_event(old, new, last_seqs, why, time_ns)._replace(boot=boot)
