"""When IN sources the hub's DOWN, and when it sleeps. Pure; times are monotonic seconds.

A source costs a heartbeat a second. Once nothing but passing words has come for a while, the agent listens to what
the hub speaks beside (`protocol/push.py`) and asks up to which sequence DOWN holds something for this vehicle. IN has
got that far: then its source is removed. What comes beside and is more than passing has it put back, and so has
anything that may have kept a word from being heard. Wakes are by level: one that fails is repeated.

The streams of nodes that have their own sleep and wake together with IN, as one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backhaul_codec.kinds import Lane

SETTLED_S = 5.0
"""IN is quiet for so long before it sleeps: to wake it costs 1.5 kB, as much as the heartbeats of twice that time."""
LISTENED_S = 1.0
"""For so long the agent listens before it asks: the hub's servers know of it by then."""
ASKED_S_MAX = 30.0
"""For so long it waits for an answer, and for IN to get as far."""
AGAIN_S = 300.0
"""So long after that in vain it tries again: an older hub never answers."""
NET_S = 3600.0
"""A sleep lasts no longer: a word beside may be lost where nobody sees it."""
HEARD_S_MAX = 1.5
"""Only a source heard since then is removed: no set-up of it is under way (ADR 1)."""


class SleepPhase(Enum):
    """The state of IN, as far as it is known."""

    UNKNOWN = "unknown"
    """Or known to be without a source that it should have."""
    SOURCED = "sourced"
    FALLING = "falling"
    """Sourced still; the agent listens, and has asked or is about to."""
    ASLEEP = "asleep"


class SleepStep(Enum):
    """The next deed of the shell."""

    REST = "rest"
    WAKE = "wake"
    """Put the source back; then `woken`."""
    ASK = "ask"
    """Have the hub asked where DOWN ends."""
    LOOK = "look"
    """Look at the source; then `looked`."""


class InSleep:
    """Decides for stream IN."""

    def __init__(self) -> None:
        self.phase = SleepPhase.UNKNOWN
        self.wakes = 0
        """How often IN was woken."""
        self.listens = False
        """Whether the agent is to listen to what is spoken beside."""
        self._since_s = 0.0
        """When it fell asleep, or began to."""
        self._quiet_s = 0.0
        """Since when it is quiet."""
        self._not_before_s = 0.0
        self._seen: tuple[int, int] | None = None
        self._asked = False
        self._ends: Mapping[Lane, int] | None = None
        """The last sequence in DOWN for each stream, by the hub's word since this began to fall asleep."""

    @property
    def asks(self) -> bool:
        """Whether the hub is to say where DOWN ends."""
        return self.phase is SleepPhase.FALLING and self._ends is None

    def begin_anew(self) -> None:
        """Take in that the link is gone or came up, or that nobody knows: IN is to be sourced."""
        self.phase, self.listens, self._not_before_s = SleepPhase.UNKNOWN, False, 0.0

    def step(
        self, now_s: float, news: int, in_doubt: int, read_to: Mapping[Lane, int]
    ) -> SleepStep:
        """Return the next step, while the link is up.

        Args:
            now_s: the time.
            news: counts what IN has brought that was more than passing.
            in_doubt: counts what gives reason to think that a word may have been lost.
            read_to: the last sequence of DOWN that each stream has brought.
        """
        before, self._seen = self._seen, (news, in_doubt)
        if before is not None and before != self._seen:
            self._quiet_s = now_s
            if self.phase is SleepPhase.FALLING or before[1] != in_doubt:
                self.wake(now_s)
        if self.phase is SleepPhase.ASLEEP and now_s - self._since_s > NET_S:
            self.wake(now_s)
        if self.phase is SleepPhase.UNKNOWN:
            return SleepStep.WAKE
        if self.phase is SleepPhase.SOURCED:
            if now_s < max(self._quiet_s + SETTLED_S, self._not_before_s):
                return SleepStep.LOOK if self.listens else SleepStep.REST
            self.phase, self.listens, self._since_s = SleepPhase.FALLING, True, now_s
            self._asked, self._ends = False, None
        if self.phase is SleepPhase.FALLING:
            return self._fall(now_s, read_to)
        return SleepStep.REST

    def _fall(self, now_s: float, read_to: Mapping[Lane, int]) -> SleepStep:
        if now_s - self._since_s > ASKED_S_MAX:
            self._not_before_s = now_s + AGAIN_S
            self.wake(now_s)
        elif not self._asked and now_s - self._since_s >= LISTENED_S:
            self._asked = True
            return SleepStep.ASK
        elif (ends := self._ends) is not None and all(
            lane in ends and seq >= ends[lane] for lane, seq in read_to.items()
        ):
            return SleepStep.LOOK
        return SleepStep.REST

    def heard(self, ends: Mapping[Lane, int] | None) -> None:
        """Take in the hub's answer: the last sequence in DOWN for each stream, None where it does not say."""
        if self._asked and self.asks:
            self._ends = ends

    def looked(self, heard_s: float, lag: int) -> bool:
        """Take in how long ago the sources were heard (below 0: never) and their lag; return whether to remove them.

        ``heard_s``: of the one that was heard longest ago.
        """
        works = 0 <= heard_s < HEARD_S_MAX and lag == 0
        if self.phase is SleepPhase.SOURCED and works:
            self.listens = False  # each message would come twice
        return self.phase is SleepPhase.FALLING and works

    def slept(self, now_s: float) -> None:
        """Take in that the source is removed. If IN was to be woken meanwhile, it still is."""
        if self.phase is SleepPhase.FALLING:
            self.phase, self._since_s = SleepPhase.ASLEEP, now_s
        else:
            self.phase = SleepPhase.UNKNOWN

    def wake(self, now_s: float) -> None:
        """Have IN sourced: something was spoken beside that is more than passing."""
        self._quiet_s = now_s
        if self.phase is SleepPhase.ASLEEP:
            self.wakes += 1
            self.phase = SleepPhase.UNKNOWN
        elif self.phase is SleepPhase.FALLING:
            self.phase = SleepPhase.SOURCED

    def woken(self, now_s: float) -> None:
        """Take in that IN has its source."""
        if self.phase is SleepPhase.UNKNOWN:
            self.phase, self._quiet_s = SleepPhase.SOURCED, now_s
