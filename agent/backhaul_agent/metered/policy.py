"""When a metered link is up: a pure state machine, no I/O.

    idle -> dialing -> draining -> leaving -> idle

The link is dialled when a visit is due or something urgent waits, and left again once everything that
waited when it came up is at the hub, and everything the hub had is here. What is published during a
visit goes along as far as it gets; it does not hold the link, or a vehicle that drives would never
leave. Artifacts hold it for a while (`artifacts_s_max` from the visit's beginning). A visit that gets nowhere ends, and the next one waits longer.

`wants_link` is all that the shell has to make true, and it may be made true again at any time: an
agent killed at any step begins anew with a visit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

STALL_S = 120.0  # a visit in which nothing has moved for this long has failed
BACKOFF_S_MIN, BACKOFF_S_MAX = 30.0, 900.0
SPREAD = 0.1  # of the interval: a fleet that was started together shall not dial together

LaneId = tuple[str, int]
Mode = Literal["always", "scheduled", "on-demand"]


class Phase(StrEnum):
    """The state of the link's switch; part of the agent's status."""

    IDLE = "idle"
    DIALING = "dialing"
    DRAINING = "draining"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class VisitPlan:
    """The configuration: when to visit the hub, and for how long. Seconds."""

    mode: Mode
    schedule_s: float
    linger_s: float
    connect_s_max: float
    artifacts_s_max: float = 600.0


@dataclass(frozen=True, slots=True)
class VisitFacts:
    """The facts now (monotonic seconds).

    ``up``: whether the link is, None where nobody can say. ``lanes``: last seq committed and
    watermark, by name and epoch. ``told``: whether all the hub has for us is here; ``received``: how
    many messages that were so far. ``moving``: bytes of artifacts moved so far, None where none wants
    the link.
    """

    now_s: float
    up: bool | None
    urgent: bool
    lanes: Mapping[LaneId, tuple[int, int]]
    told: bool
    received: int
    moving: int | None = None


@dataclass(slots=True)
class Metered:
    """Decides whether the link is wanted. `chance` draws from 0 to 1."""

    plan: VisitPlan
    chance: Callable[[], float]
    now_s: float
    phase: Phase = Phase.IDLE
    next_visit_s: float | None = None
    visits: int = 0
    failures: int = 0  # in a row
    last_failure: str = ""
    _not_before_s: float = 0.0
    _began_s: float = 0.0
    _since_s: float = 0.0
    _quiet_s: float = 0.0
    _moved_s: float = 0.0
    _seen: tuple[int, int, int] = (0, 0, 0)
    _targets: dict[LaneId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.plan.mode != "always":
            self.next_visit_s = self._not_before_s = self.now_s

    @property
    def wants_link(self) -> bool:
        """Return whether the leaf server shall have a link to the hub."""
        return self.plan.mode == "always" or self.phase in (Phase.DIALING, Phase.DRAINING)

    def step(self, facts: VisitFacts) -> None:
        """Take in the facts; `wants_link` may change by that."""
        if self.plan.mode == "always":
            return
        match self.phase:
            case Phase.IDLE:
                self._idle(facts)
            case Phase.DIALING:
                self._dialing(facts)
            case Phase.DRAINING:
                self._draining(facts)
            case Phase.LEAVING:
                if facts.up is not True:
                    self.phase = Phase.IDLE

    def _idle(self, facts: VisitFacts) -> None:
        due = self.next_visit_s is not None and facts.now_s >= self.next_visit_s
        if due or (facts.urgent and facts.now_s >= self._not_before_s):
            self.phase = Phase.DIALING
            self.visits += 1
            self._began_s = self._since_s = facts.now_s
            self._targets = {}

    def _dialing(self, facts: VisitFacts) -> None:
        if facts.up:
            self.phase = Phase.DRAINING
            self._quiet_s = self._moved_s = facts.now_s
            self._seen = _progress(facts)
            if not self._targets:
                self._targets = {lane: last for lane, (last, _) in facts.lanes.items()}
        elif facts.now_s - self._since_s >= self.plan.connect_s_max:
            self._failed(facts.now_s, f"no link in {self.plan.connect_s_max:.0f} s")

    def _draining(self, facts: VisitFacts) -> None:
        if facts.up is False:
            self.phase, self._since_s = Phase.DIALING, facts.now_s
            return
        seen = _progress(facts)
        if seen != self._seen:
            self._moved_s = facts.now_s
        received = seen[1] != self._seen[1]
        self._seen = seen
        owed = facts.urgent or any(
            lane in facts.lanes and facts.lanes[lane][1] < target
            for lane, target in self._targets.items()
        )
        # Artifacts wait for a visit and make none, and they hold none for ever.
        moving = (
            facts.moving is not None and facts.now_s - self._began_s < self.plan.artifacts_s_max
        )
        if owed or received or moving or not facts.told:
            self._quiet_s = facts.now_s
        if facts.now_s - self._quiet_s >= self.plan.linger_s:
            self._succeeded()
        elif facts.now_s - self._moved_s >= max(STALL_S, self.plan.linger_s):
            self._failed(facts.now_s, f"nothing has moved for {STALL_S:.0f} s")

    def _succeeded(self) -> None:
        self.phase = Phase.LEAVING
        self.failures, self.last_failure, self._not_before_s = 0, "", 0.0
        self.next_visit_s = None
        if self.plan.mode == "scheduled":
            spread = 1 + SPREAD * (self.chance() - 0.5)
            self.next_visit_s = self._began_s + self.plan.schedule_s * spread

    def _failed(self, now_s: float, why: str) -> None:
        self.phase = Phase.LEAVING
        self.last_failure = why
        self.failures += 1
        wait_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self.failures - 1, 10))
        self.next_visit_s = self._not_before_s = now_s + wait_s * (0.5 + self.chance() / 2)


def _progress(facts: VisitFacts) -> tuple[int, int, int]:
    watermarks = sum(watermark for _, watermark in facts.lanes.values())
    return watermarks, facts.received, facts.moving or 0
