"""The time, as well as this vehicle can know it: a pure core, no I/O (docs/clocks.md).

A vehicle's wall clock may be wrong by years and may jump. So hub time is anchored on the steady clock,
which does neither: once the hub has been asked, now is the steady clock plus the anchor, whatever the
wall clock does. Until then there is either a wall clock that can be believed, or a *provisional* time:
the steady clock plus a guess that is fixed for this boot. What was stamped by it is marked with the
number of the guess, and one shift puts all of it right later.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.config import ClockConfig
from backhaul_agent.hub_time.estimator import ClockSample, Estimate, Estimator, StepGuard

if TYPE_CHECKING:
    from backhaul_runtime.clock import SteadyClock

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000
DAY_NS = 86_400 * SECOND_NS
# No vehicle with this software ran before 2023, so a clock that says so was never set. Nor will one
# run ten years after the newest time its hub has told it.
FLOOR_NS = 1_672_531_200 * SECOND_NS
CEILING_NS = 3653 * DAY_NS
HUB_NS_MAX = 1 << 62  # the year 2116
JUMP_NS = SECOND_NS // 2
REACH_NS = SECOND_NS
READS_MAX = 3
# An answer every interval keeps the clock synced; two may be missed.
INTERVALS_MISSED_MAX = 2.5


class Quality(IntEnum):
    """How good the clock is; the numbers are those of a frame's field 14."""

    SYNCED = 0
    HOLDOVER = 1
    UNSET = 2


class HubClockState(NamedTuple):
    """The clock's report for the hub and an operator.

    ``offset_ns``: this clock less the machine's wall clock. ``error_ns``: None where nobody knows.
    ``step_ns``: by how much the hub's word contradicts this clock, None where it does not.
    """

    quality: Quality
    offset_ns: int
    error_ns: int | None
    boot: str
    step_ns: int | None = None


class HubClock:
    """The clock that everything in the agent is stamped by; is a `SteadyClock` itself.

    ``look`` must be called about once a second: only there, in `start` and in `adopt` does the
    state change, so that a stamp and its mark always belong together.
    """

    def __init__(self, clock: SteadyClock, config: ClockConfig | None = None) -> None:
        self.unwritten: dict[int, Boot] = {}  # what the next commit must write
        self.boots: dict[int, Boot] = {}
        self.jumps = 0
        self._clock = clock
        self._config = config or ClockConfig(trust_system="yes")
        self.steps = StepGuard(self._config.max_step_s, self._config.step_confirm_s)
        self._estimator = Estimator(self._config.drift_ppm)
        self._estimate: Estimate | None = None
        self._heard_ns = 0  # steady time of the last exchange
        self._floor_ns = self._told_ns = FLOOR_NS
        self._system_anchor: int | None = None  # wall less steady, when the wall was last believed
        self._wall_anchor = clock.now_ns() - clock.steady_ns()
        self._now = Boot(0, "", self._wall_anchor)
        self._released = False
        self._exact = False
        if self._config.trust_system == "yes":
            self._believe_system()

    @classmethod
    def of(cls, clock: SteadyClock) -> HubClock:
        """Return a hub clock as it is, and any other as one that is right and needs no hub."""
        if isinstance(clock, cls):
            return clock
        made = cls(clock, ClockConfig(trust_system="yes"))
        made._exact = True
        return made

    # What the time is

    def now_ns(self) -> int:
        """Return now in ns since the Unix epoch: the hub's, as well as it is known."""
        steady = self._clock.steady_ns()
        if self._estimate is not None:
            return steady + self._estimate.anchor_ns
        if self._system_anchor is None:
            return steady + self._now.provisional_ns
        wall = self._clock.now_ns()
        if self._believable(wall):
            self._system_anchor = wall - steady
            return wall
        return steady + self._system_anchor

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return self._clock.monotonic_s()

    def steady_ns(self) -> int:
        """Return nanoseconds since the machine started."""
        return self._clock.steady_ns()

    @property
    def quality(self) -> Quality:
        """Return how good `time_ns` is."""
        if self._exact:
            return Quality.SYNCED
        if self._estimate is None:
            return Quality.UNSET if self._system_anchor is None else Quality.HOLDOVER
        heard_s = (self._clock.steady_ns() - self._heard_ns) / SECOND_NS
        fresh = heard_s <= self._config.interval_s * INTERVALS_MISSED_MAX
        return Quality.SYNCED if fresh and self.steps.step is None else Quality.HOLDOVER

    @property
    def settled(self) -> bool:
        """Whether stamps made now need no correction later."""
        return self._estimate is not None or self._system_anchor is not None

    @property
    def mark(self) -> int:
        """Return the boot that a stamp made now waits for, 0 where it may leave as it is."""
        return 0 if self.settled or self._released else self._now.number

    @property
    def marks(self) -> list[int]:
        """Return the boots whose stamps may still be put right: this machine start's, while unset."""
        if not self.mark:
            return []
        return [each.number for each in self.boots.values() if each.boot == self._now.boot]

    @property
    def error_ns(self) -> int | None:
        """Return how wrong `time_ns` is at most; None where nobody has told us."""
        if self._estimate is None:
            return None
        return self._estimate.error_at(self._clock.steady_ns(), self._config.drift_ppm)

    def latest_ns(self) -> int | None:
        """Return the latest that it can be by the hub's clock, None where nobody vouches for one.

        A wall clock that merely can be true is not enough to say that a deadline has not passed.
        """
        if self.error_ns is not None:
            return self.now_ns() + self.error_ns
        return self.now_ns() if self._config.trust_system == "yes" else None

    def state(self) -> HubClockState:
        """Return all of it at once."""
        step = self.steps.step
        step_ns = step.step_ns if step is not None else None
        return HubClockState(
            self.quality, self._offset_ns(), self.error_ns, self._now.boot, step_ns
        )

    def system_shift_ns(self) -> int:
        """Return the difference between a stamp of the machine's wall clock and one of this clock.

        In whole milliseconds: stamps on a coarse grid stay on it, which is what makes frames small.
        """
        return round(self._offset_ns() / MS_NS) * MS_NS

    # What changes it

    def start(self, boot: str, known: Iterable[Boot], newest_ns: int = 0) -> None:
        """Begin, with the ledger's knowledge.

        ``boot``: the identity of this start of the machine. ``newest_ns``: the newest time that is
        known to be past, such as the hub's newest stamp.
        """
        self.boots = {each.number: each for each in known}
        told = [
            each.anchor_ns + each.at_ns
            for each in self.boots.values()
            if each.anchor_ns is not None and each.error_ns is not None
        ]
        self._told_ns = max([FLOOR_NS, *told])
        self._floor_ns = max(self._told_ns, newest_ns)
        self._system_anchor = None
        steady = self._clock.steady_ns()
        mine = [each for each in self.boots.values() if each.boot.partition("/")[0] == boot]
        if not mine:
            self._begin(boot, self._guess() - steady)
        elif mine[-1].at_ns > steady:
            # The steady clock went back: a machine put back from a snapshot has another past now.
            self._begin(f"{boot}/{mine[-1].number}", self._guess() - steady)
        else:
            self._now = mine[-1]
            self._resume(self._now)
        if self._estimate is None:
            self._believe_system()

    def adopt(self, sample: ClockSample) -> Estimate | None:
        """Take in an exchange with the hub, and from now on its time.

        None where the hub contradicts what it said before: `steps` waits for it to be confirmed, and
        the time goes on as it was.

        Raises:
            ValueError: the hub's times cannot be; nothing was taken in.
        """
        if not FLOOR_NS <= sample.t2 <= HUB_NS_MAX:
            raise ValueError(f"the hub says that it is {sample.t2} ns since 1970")
        self._estimator.check(sample)
        if not self.steps.believes(sample, *self._known_bounds(), [self._wall_witness()]):
            return None
        self._estimator.add(sample)
        self._heard_ns = self._clock.steady_ns()
        estimate = self._estimator.estimate(self._heard_ns)
        assert estimate is not None
        self._estimate = estimate
        self._know(estimate.anchor_ns, estimate.error_ns, estimate.at_ns)
        return estimate

    def look(self) -> int:
        """Look at the wall clock; return by how many ns it has jumped since, mostly 0."""
        wall, steady = self._clock.now_ns(), self._clock.steady_ns()
        jump = wall - steady - self._wall_anchor
        self._wall_anchor += jump
        if self._estimate is None:
            self._believe_system()
        if abs(jump) < JUMP_NS:
            return 0
        self.jumps += 1
        return jump

    def release(self) -> None:
        """Wait for the time no longer: from now on nothing is marked, unset or not."""
        self._released = True

    def reach(self, time_ns: int) -> None:
        """Learn that it is later than ``time_ns``, while unset: provisional time must not lag it.

        What was stamped before keeps its mark, what follows gets another.
        """
        if self.settled or time_ns - self.now_ns() < REACH_NS:
            return
        self._begin(self._now.boot, time_ns - self._clock.steady_ns())

    def written(self, boots: Iterable[Boot]) -> None:
        """Take in that these are in the ledger now."""
        for boot in boots:
            if self.unwritten.get(boot.number) == boot:
                del self.unwritten[boot.number]

    def correction_of(self, number: int) -> tuple[int, Quality] | None:
        """Return the correction of stamps marked with a number, and how good they are then.

        None where the time of that boot was never known.
        """
        boot = self.boots.get(number)
        if boot is None or boot.anchor_ns is None:
            return None
        quality = Quality.HOLDOVER if boot.error_ns is None else Quality.SYNCED
        return boot.anchor_ns - boot.provisional_ns, quality

    def _known_bounds(self) -> tuple[int, int]:
        """Return the bounds of hub time less steady time, before the hub is heard."""
        steady = self._clock.steady_ns()
        if self._estimate is not None:
            error = self._estimate.error_at(steady, self._config.drift_ppm)
            return self._estimate.anchor_ns - error, self._estimate.anchor_ns + error
        # No hub goes back behind what one has said, in an earlier boot. Nothing says how long ago.
        return self._told_ns - steady, HUB_NS_MAX

    def _wall_witness(self) -> int | None:
        """Return the anchor by the machine's wall clock; None where it is not believed."""
        wall = self._clock.now_ns()
        return wall - self._clock.steady_ns() if self._believable(wall) else None

    def _offset_ns(self) -> int:
        if self._estimate is None and self._system_anchor is not None:
            wall = self._clock.now_ns()
            return 0 if self._believable(wall) else self.now_ns() - wall
        # Two clocks cannot be read at once: the pair that was read in the shortest time counts.
        read = (self._read_both() for _ in range(READS_MAX))
        return min(read)[1]

    def _read_both(self) -> tuple[int, int]:
        before, wall, after = self.now_ns(), self._clock.now_ns(), self.now_ns()
        return after - before, (before + after) // 2 - wall

    def _guess(self) -> int:
        """Return a time to begin with: the wall's where it can be, else the newest known one."""
        wall = self._clock.now_ns()
        return wall if self._plausible(wall) else self._floor_ns

    def _plausible(self, wall_ns: int) -> bool:
        return self._floor_ns <= wall_ns <= self._floor_ns + CEILING_NS

    def _believable(self, wall_ns: int) -> bool:
        trust = self._config.trust_system
        return trust == "yes" or (trust == "auto" and self._plausible(wall_ns))

    def _believe_system(self) -> None:
        """Believe the wall clock if it can be believed; once believed, its anchor is kept."""
        wall = self._clock.now_ns()
        if not self._believable(wall):
            return
        first = self._system_anchor is None
        self._system_anchor = wall - self._clock.steady_ns()
        if first and self._now.number:
            self._know(self._system_anchor, None, self._clock.steady_ns())

    def _begin(self, boot: str, provisional_ns: int) -> None:
        number = max(self.boots, default=0) + 1
        self._now = Boot(number, boot, provisional_ns)
        self._write(self._now)

    def _resume(self, boot: Boot) -> None:
        """Go on with the knowledge of an earlier process of this boot."""
        if boot.anchor_ns is None:
            return
        if boot.error_ns is None:
            self._system_anchor = boot.anchor_ns
            return
        self._estimate = Estimate(boot.anchor_ns, boot.error_ns, boot.at_ns)
        self._heard_ns = boot.at_ns
        self._estimator.restore(self._estimate)

    def _know(self, anchor_ns: int, error_ns: int | None, at_ns: int) -> None:
        """Note the anchor with every guess of this boot."""
        for boot in list(self.boots.values()):
            if boot.boot == self._now.boot:
                known = boot._replace(anchor_ns=anchor_ns, error_ns=error_ns, at_ns=at_ns)
                self._write(known)
                if boot.number == self._now.number:
                    self._now = known

    def _write(self, boot: Boot) -> None:
        self.boots[boot.number] = self.unwritten[boot.number] = boot


class Boot(NamedTuple):
    """One start of the machine, and the knowledge of its clock; times in ns.

    ``provisional_ns``: wall clock less steady clock when the agent first ran in this boot; stamps
    made before the time is known are the steady clock plus this. ``anchor_ns``: true time less
    steady clock, None until known. ``error_ns``: how wrong the anchor was at steady time ``at_ns``
    at most; None where it is the machine's own clock that is believed.
    """

    number: int
    boot: str
    provisional_ns: int
    anchor_ns: int | None = None
    error_ns: int | None = None
    at_ns: int = 0
