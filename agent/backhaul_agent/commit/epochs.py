"""Whether the ledger's epoch may go on: a pure core, no I/O.

A ledger may have been put back from an old copy, and nothing in it tells. Whatever it then gave out
would have the seqs of what the hub knows already, and be dropped as a repeat. So in a new run of the
agent the epoch goes on only by the word of all who may know better: the hub says which seq of each
lane is the highest that it knows, and the leaf's OUT streams say it by what stands in them. Where one
of them knows more than the ledger, or the hub cannot be asked, the run's first commit opens a new
epoch (docs/adr/0014). Later in the run anybody who turns out to know more has the same effect.

Only whoever waits for an answer forces a decision without the hub's word; what the agent itself has to
write waits for it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PATIENCE_S = 2.0  # for which a publisher waits for the hub's word, the link being up
PATIENCE_OWN_S = 20.0  # for which the agent's own notes wait for it, the link being up
EPOCHS_MAX = 512
"""Former epochs that the hub has not confirmed. With so many the epoch goes on without its word."""


class Verdict(StrEnum):
    """What is known of the current epoch; part of the agent's status."""

    WAITING = "waiting"  # nothing may be committed yet
    GOES_ON = "goes_on"
    OVER = "over"  # the next commit opens a new one


class Epochs:
    """Judges the ledger's current epoch. Times are monotonic seconds.

    ``fresh``: the ledger was created by this run, so nobody can know more of it. ``lanes``: their
    names; ``last_seq`` returns how far the ledger goes in one of them.
    """

    def __init__(
        self, *, fresh: bool, lanes: Iterable[str], last_seq: Callable[[str], int]
    ) -> None:
        self.verdict = Verdict.GOES_ON if fresh else Verdict.WAITING
        self.why = ""  # why it is over
        self.former = 0  # how many former epochs the hub has not confirmed
        self._unseen = set(lanes)  # lanes whose OUT was not looked at
        self._last_seq = last_seq
        self._heard = False
        self._link: bool | None = None
        self._linked_s: float | None = None
        self._urgent_s: float | None = None

    def note_link(self, up: bool | None, now_s: float) -> None:
        """Take in whether the link is up; None: nobody can say."""
        if up is not self._link:
            self._linked_s = now_s if up else None
        self._link = up

    def hub_knows(self, highest: Mapping[str, int]) -> None:
        """Take in the hub's word: the highest seq that it knows of each lane of this epoch."""
        more = [lane for lane, seq in highest.items() if seq > self._last_seq(lane)]
        if more:
            self.behind(f"the hub knows more of {', '.join(sorted(more))} than the ledger")
        self._heard = True
        self._decide()

    def out_knows(self, lane: str, seq: int, *, stranger: bool = False) -> None:
        """Take in the highest seq of this epoch at the end of a lane's OUT, 0 where there is none.

        ``stranger``: a newer ledger of this vehicle has written there.
        """
        if stranger or seq > self._last_seq(lane):
            self.behind(f"OUT holds more of {lane} than the ledger")
        self._unseen.discard(lane)
        self._decide()

    def behind(self, why: str) -> None:
        """Take in that somebody knows seqs of this epoch that the ledger has never given out."""
        if self.verdict is not Verdict.OVER:
            self.verdict, self.why = Verdict.OVER, why

    def opened(self) -> None:
        """Take in that a new epoch has begun: nobody can know more of it."""
        self.verdict, self.why = Verdict.GOES_ON, ""

    def may_commit(self, now_s: float, *, urgent: bool) -> bool:
        """Return whether anything may be committed now; the verdict says under which epoch.

        ``urgent``: somebody waits for it. Without a link nobody is made to wait: then a new epoch.
        """
        if self.verdict is not Verdict.WAITING:
            return True
        if urgent and self._urgent_s is None:
            self._urgent_s = now_s
        due_s = self.due_s()
        if (urgent and self._link is False) or (due_s is not None and now_s >= due_s):
            self._give_up_waiting()
        return self.verdict is not Verdict.WAITING

    def due_s(self) -> float | None:
        """Return when waiting ends at the latest, None where only news ends it."""
        if self.verdict is not Verdict.WAITING:
            return None
        times = []
        if self._urgent_s is not None:
            times.append(self._urgent_s + (PATIENCE_S if self._link is not False else 0.0))
        if self._linked_s is not None:
            times.append(self._linked_s + PATIENCE_OWN_S)
        return min(times, default=None)

    def _decide(self) -> None:
        if self.verdict is Verdict.WAITING and self._heard and not self._unseen:
            self.verdict = Verdict.GOES_ON

    def _give_up_waiting(self) -> None:
        if self.former >= EPOCHS_MAX:
            self.verdict = Verdict.GOES_ON
        else:
            self.behind("started without the hub's word")
