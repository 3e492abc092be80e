"""A vehicle's clocks, moved by hand."""

from __future__ import annotations

from backhaul_agent.config import ClockConfig
from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import HubClock
from tests.support.agent_clock import FakeClock

MS, S = 10**6, 10**9


DAY, YEAR = 86_400 * S, 365 * 86_400 * S


NOW = 1_780_000_000 * S  # in truth, at the start of each test


class Vehicle:
    """A machine whose wall clock is off by `wrong` ns, and the truth beside it."""

    def __init__(self, wrong: int = 0, *, trust: str = "auto", drift_ppm: float = 0.0) -> None:
        self.system = FakeClock(NOW + wrong)
        self.config = ClockConfig(trust_system=trust, drift_ppm=drift_ppm)  # type: ignore[arg-type]
        self.anchor = NOW - self.system.steady_ns()
        self.boot = "boot-a"
        self.clock = HubClock(self.system, self.config)
        self.clock.start(self.boot, [])

    @property
    def truth(self) -> int:
        return self.system.steady_ns() + self.anchor

    def sync(self, up: int = 10 * MS, down: int = 10 * MS) -> None:
        t1 = self.system.steady_ns()
        t2 = t1 + up + self.anchor
        self.system.advance((up + down) / S)
        self.clock.adopt(ClockSample(t1, t2, t2, t1 + up + down))

    def restart(self, *, boot: str | None = None, newest_ns: int = 0) -> HubClock:
        """Begin a new process; with a ``boot`` of its own the machine started anew."""
        known = list(self.clock.boots.values())
        if boot is not None:
            self.boot, self.system.now_s = boot, 5.0
            self.anchor = NOW + 10 * DAY - self.system.steady_ns()
        self.clock = HubClock(self.system, self.config)
        self.clock.start(self.boot, known, newest_ns)
        return self.clock
