"""How far the vehicle's steady clock is from the hub's time: a pure estimator, no I/O.

One exchange gives four times, as in NTP (RFC 5905): ``t1`` the question leaves and ``t4`` the answer
arrives, by the vehicle's steady clock; ``t2`` and ``t3`` the same at the hub, by the hub's. A message
never arrives before it was sent, so hub time less steady time, the *anchor*, was

    at most  t2 - t1  when the question left,   at least  t3 - t4  when the answer arrived.

Those are bounds, not guesses: they hold on the slowest and most lopsided link, where the middle of
them may be wrong by half a round trip. Several exchanges together leave what all of them allow: a
quick one narrows it, a slow one adds nothing, which weighs them by their round trips exactly. Bounds
grow with age, by as much as the two clocks may drift apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

SAMPLES_MAX = 8
INT64_MAX = (1 << 63) - 1
MILLION = 1_000_000


class ClockSample(NamedTuple):
    """The four times of one exchange, in ns: ``t1``, ``t4`` steady, ``t2``, ``t3`` the hub's."""

    t1: int
    t2: int
    t3: int
    t4: int

    @property
    def round_trip_ns(self) -> int:
        """Return how long the exchange was on the way, the hub's own time not counted."""
        return (self.t4 - self.t1) - (self.t3 - self.t2)


class Estimate(NamedTuple):
    """Hub time less steady time is ``anchor_ns``, give or take ``error_ns``, at steady ``at_ns``."""

    anchor_ns: int
    error_ns: int
    at_ns: int

    def error_at(self, now_ns: int, drift_ppm: float) -> int:
        """Return how wrong the anchor may be at another steady time."""
        return self.error_ns + drift_ns(now_ns - self.at_ns, drift_ppm)


class _Bounds(NamedTuple):
    low: int
    low_at: int
    high: int
    high_at: int


class Estimator:
    """Takes in exchanges; knows the anchor and how wrong it can be.

    ``drift_ppm``: how fast the vehicle's clock and the hub's may drift apart.
    """

    def __init__(self, drift_ppm: float) -> None:
        self._drift_ppm = drift_ppm
        self._bounds: deque[_Bounds] = deque(maxlen=SAMPLES_MAX)

    def check(self, sample: ClockSample) -> None:
        """Look at an exchange, before it is taken in.

        Raises:
            ValueError: no two clocks can have shown these times.
        """
        if not all(-INT64_MAX <= time <= INT64_MAX for time in sample):
            raise ValueError("a time that does not fit 64 bits of nanoseconds")
        if sample.t4 < sample.t1 or sample.t3 < sample.t2:
            raise ValueError("an answer before its question")
        if sample.round_trip_ns < -2 * drift_ns(sample.t4 - sample.t1, self._drift_ppm):
            raise ValueError("the hub took longer than the whole exchange")

    def add(self, sample: ClockSample) -> None:
        """Take in an exchange.

        Raises:
            ValueError: no two clocks can have shown these times; nothing was taken in.
        """
        self.check(sample)
        low, high = sample.t3 - sample.t4, sample.t2 - sample.t1
        self._bounds.append(_Bounds(low, sample.t4, high, sample.t1))

    def restore(self, estimate: Estimate) -> None:
        """Take in the estimate of an earlier process of this boot."""
        anchor, error, at = estimate
        self._bounds.append(_Bounds(anchor - error, at, anchor + error, at))

    def estimate(self, now_ns: int) -> Estimate | None:
        """Return the best that can be said at a steady time, None before the first exchange.

        The newest exchange is believed. An older one that contradicts it tells of a hub whose clock
        was set meanwhile, and is left out together with all before it.
        """
        found: tuple[int, int] | None = None
        for bounds in reversed(self._bounds):
            low = bounds.low - drift_ns(now_ns - bounds.low_at, self._drift_ppm)
            high = bounds.high + drift_ns(now_ns - bounds.high_at, self._drift_ppm)
            if found is not None:
                low, high = max(low, found[0]), min(high, found[1])
            if low > high:
                break
            found = low, high
        if found is None:
            return None
        low, high = found
        return Estimate((low + high) // 2, (high - low + 1) // 2, now_ns)


def drift_ns(age_ns: int, drift_ppm: float) -> int:
    """Return by how much clocks may drift apart in a time, rounded up."""
    return int(max(0, age_ns) * drift_ppm / MILLION) + 1


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
    """Weighs answers: whether to believe a hub whose clock is not where it was.

    The vehicle's steady clock does not jump, so an answer that contradicts the ones before it says that the
    hub's clock was set. Whether it is right now or was right before, one answer cannot tell: such a step is
    only noted, and the time goes on as it was. It is taken over once the hub has said the same again and
    again for `step_confirm_s`; sooner where somebody else says it too: the machine's own wall clock, or what
    was known before the last step, so that a hub that comes back is believed at once.

    ``step`` is the one that waits to be confirmed, None for none.

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
