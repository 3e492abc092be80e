"""The time that the control plane goes by: the machine's, but no step of it that nothing confirms.

Everything at the hub is stamped by this clock, and every vehicle asks for it, so one wrong `date` would
be in a whole fleet within minutes. The kernel's steady clock does not jump: what the wall clock does
against it is a step. One beyond `max_step_s` is a condition and not followed until it has lasted for
`step_confirm_s`; one that is taken back before has had no effect. What was known is kept in a file, so
that a control plane that starts meanwhile knows it too. `HubTime` is pure.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import structlog

from backhaul_hub.config import ClockRule
from backhaul_hub.private_files import write_private
from backhaul_runtime.clock import SteadyClock, boot_id

SECOND_NS = 1_000_000_000
RECORD_INTERVAL_S = 60.0
RECORD = "clock.json"
log = structlog.get_logger(__name__)


class Record(msgspec.Struct, frozen=True):
    """The time (ns since 1970) at a steady time of a start of the machine."""

    boot: str
    time_ns: int
    steady_ns: int

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the record of the last control plane; None where there is nothing of use."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((directory / RECORD).read_bytes(), type=cls)
        return None

    def write(self, directory: Path) -> None:
        """Write it into the hub's directory. Raises: OSError."""
        write_private(directory / RECORD, msgspec.json.encode(self).decode())


class WallClockStep(NamedTuple):
    """The wall clock is so much later than the time gone by; since when, in steady ns."""

    step_ns: int
    since_ns: int


class HubTime:
    """A clock. It learns of a step when it is asked for the time.

    Args:
        boot: names this start of the machine; "" where nobody knows.
        max_step_s: what the wall clock may jump by unquestioned.
        confirm_s: for how long a greater step must last.
        before: what was known last.
    """

    def __init__(
        self,
        clock: SteadyClock,
        boot: str,
        max_step_s: float,
        confirm_s: float,
        before: Record | None = None,
    ) -> None:
        self.step: WallClockStep | None = None
        """The one that is not followed (yet)."""
        self._clock = clock
        self._boot = boot
        self._max_ns = round(max_step_s * SECOND_NS)
        self._confirm_ns = round(confirm_s * SECOND_NS)
        wall, steady = clock.now_ns(), clock.steady_ns()
        self._anchor = wall - steady
        self._least_only = False
        """Whether the anchor is the least that it can be, and nobody knows how much was left out."""
        if before is None:
            return
        if boot and before.boot == boot and before.steady_ns <= steady:
            self._anchor = before.time_ns - before.steady_ns
        elif wall < before.time_ns - self._max_ns:
            self._anchor = before.time_ns - steady
            self._least_only = True
        self.now_ns()

    @classmethod
    def of(cls, directory: Path, rule: ClockRule, clock: SteadyClock) -> Self:
        """Return the time of a hub, with its last control plane's record."""
        before = Record.read(directory)
        return cls(clock, boot_id(), rule.max_step_s, rule.step_confirm_s, before)

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""
        return self._clock.monotonic_s()

    def now_ns(self) -> int:
        """Return the time in nanoseconds since the Unix epoch."""
        wall, steady = self._clock.now_ns(), self._clock.steady_ns()
        step_ns = wall - steady - self._anchor
        if abs(step_ns) <= self._max_ns or (self._least_only and step_ns > 0):
            self._follow(step_ns)
            return wall
        if self.step is None or abs(step_ns - self.step.step_ns) > self._max_ns:
            self.step = WallClockStep(step_ns, steady)
            log.warning("clock_stepped", step_s=step_ns / SECOND_NS, followed="no")
        if steady - self.step.since_ns < self._confirm_ns:
            return steady + self._anchor
        log.warning("clock_stepped", step_s=step_ns / SECOND_NS, followed="yes")
        self._follow(step_ns)
        return wall

    def confirms_in_s(self) -> float:
        """Return for how long the step must still last to be followed."""
        if self.step is None:
            return 0.0
        left_ns = self.step.since_ns + self._confirm_ns - self._clock.steady_ns()
        return max(0.0, left_ns / SECOND_NS)

    def record(self) -> Record:
        """Return the record for the next control plane."""
        return Record(self._boot, self.now_ns(), self._clock.steady_ns())

    def _follow(self, step_ns: int) -> None:
        if self.step is not None and abs(step_ns) <= self._max_ns:
            log.info("clock_came_back")
        self._anchor += step_ns
        self._least_only = False
        self.step = None


async def keep_record(time: HubTime, directory: Path) -> None:
    """Note the time for the next control plane, for ever."""
    while True:
        try:
            await asyncio.to_thread(time.record().write, directory)
        except OSError as error:
            # A hub directory that is read only serves vehicles all the same.
            log.warning("time_not_noted", error=str(error))
        await asyncio.sleep(RECORD_INTERVAL_S)
