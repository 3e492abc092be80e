"""Whether to believe a hub whose clock is not where it was: a pure core, no I/O.

The vehicle's steady clock does not jump, so an answer that contradicts the ones before it says that the
hub's clock was set. Whether it is right now or was right before, one answer cannot tell: such a step is
only noted, and the time goes on as it was. It is taken over once the hub has said the same again and
again for `step_confirm_s`; sooner where somebody else says it too: the machine's own wall clock, or what
was known before the last step, so that a hub that comes back is believed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backhaul_agent.hub_time.estimator import ClockSample

SECOND_NS = 1_000_000_000
LOOKS_MIN = 3
# With a witness: long enough that it is no one moment in which a clock is being set back and forth.
WITNESSED_NS = 10 * SECOND_NS


class ClockStep(NamedTuple):
    """The hub's word against the vehicle's: so much later, since when (steady), said how often."""

    step_ns: int
    since_ns: int
    looks: int


class StepGuard:
    """Weighs answers. ``step`` is the one that waits to be confirmed, None for none.

    Args:
        max_step_s: what the hub's clock may jump by unquestioned.
        confirm_s: for how long it must say the same else.
    """

    def __init__(self, max_step_s: float, confirm_s: float) -> None:
        self.step: ClockStep | None = None
        self.adopted = 0
        self._max_ns = round(max_step_s * SECOND_NS)
        self._confirm_ns = round(confirm_s * SECOND_NS)
        self._left: int | None = None  # the anchor that the last step led away from
        self._said = 0  # the anchor of the step that waits, as it was said first

    def believes(
        self, sample: ClockSample, low: int, high: int, witnesses: Sequence[int | None] = ()
    ) -> bool:
        """Take in an answer; return whether it is to be gone by.

        Args:
            sample: the answer.
            low: of hub time less steady time, as it is known: it is no less.
            high: it is no more.
            witnesses: what others say that it is, if anything.
        """
        said_low, said_high = sample.t3 - sample.t4, sample.t2 - sample.t1
        if max(said_low - high, low - said_high) <= self._max_ns:
            self.step = None
            return True
        said = (said_low + said_high) // 2
        known = low if said < low else high
        step = self.step = self._noted(said - known, said, sample.t4)
        if not self._confirmed(step, said, sample.t4, [*witnesses, self._left]):
            return False
        self.step, self._left = None, known
        self.adopted += 1
        return True

    def confirms_in_ns(self, now_ns: int) -> int:
        """Return how long, at a steady time, until the hub's word alone is enough; 0 without a step."""
        if self.step is None:
            return 0
        return max(0, self.step.since_ns + self._confirm_ns - now_ns)

    def _noted(self, step_ns: int, said: int, now_ns: int) -> ClockStep:
        step = self.step
        if step is None or abs(said - self._said) > self._max_ns:
            self._said = said
            return ClockStep(step_ns, now_ns, 1)
        return ClockStep(step_ns, step.since_ns, step.looks + 1)

    def _confirmed(
        self, step: ClockStep, said: int, now_ns: int, witnesses: Sequence[int | None]
    ) -> bool:
        witnessed = any(each is not None and abs(each - said) <= self._max_ns for each in witnesses)
        lasted_ns = WITNESSED_NS if witnessed else self._confirm_ns
        looks_min = LOOKS_MIN - 1 if witnessed else LOOKS_MIN
        return step.looks >= looks_min and now_ns - step.since_ns >= lasted_ns
