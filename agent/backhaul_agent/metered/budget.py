"""The link's budget of a day and a month, and the measures if it is short: a pure core, no I/O.

    as configured -> longer flushes -> telemetry thinned

The pace is what the link has carried lately. Where it would pass what is left of a period, telemetry is
flushed less often, which loses nothing: fuller messages say the same in fewer bytes. Only where the
longest flush does not do is telemetry thinned, and given up thinning comes first where there is room again.

Days and months are those of UTC. Home and roaming have budgets of their own, and counts of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from backhaul_agent.ledger.eviction_policy import ACCOUNT, EVENT, TELEMETRY, class_of
from backhaul_codec.kinds import SYSTEM, SYSTEM_KINDS
from backhaul_codec.protocol.vehicle_report import LINK_KINDS
from backhaul_codec.subjects import shared_subject

HOUSEKEEPING = "housekeeping"
TELEMETRY_KIND = "telemetry"
KINDS = LINK_KINDS
"""``state``: state and configuration. ``events``: programs' events, and results of commands. ``system``:
receipts, marks, digests, dictionaries. ``housekeeping``: all that no message of a lane accounts for:
acknowledgements, heartbeats, resends, files, and everything that the hub sends."""


def kind_of(subject: str) -> str:
    """Return the kind of a message by its leaf subject."""
    prefix, *rest = shared_subject(subject).split(".")
    worth = class_of(subject)
    if worth == TELEMETRY:
        return TELEMETRY_KIND
    if worth == ACCOUNT or (prefix == SYSTEM.prefix and rest and rest[0] in SYSTEM_KINDS):
        return "system"
    return "events" if worth == EVENT else "state"


@dataclass(slots=True)
class Meter:
    """Turns a counter that begins anew now and then into differences.

    ``source``: who counts; another one begins anew. The bytes counted while nobody looked are found at
    the next look, where the source is still the same.
    """

    source: str = ""
    sent: int = 0
    received: int = 0

    def read(self, source: str, sent: int, received: int) -> tuple[int, int]:
        """Return the bytes sent and received since the last reading; the first one of all finds none."""
        known = self.source
        again = source != known or sent < self.sent or received < self.received
        base = (0, 0) if again else (self.sent, self.received)
        self.source, self.sent, self.received = source, sent, received
        return (sent - base[0], received - base[1]) if known else (0, 0)

    def kept(self) -> list[Any]:
        """Return it as JSON's values, for `Meter(*kept)`."""
        return [self.source, self.sent, self.received]


HOME, ROAMING = "home", "roaming"
DAY, MONTH = "day", "month"
PERIODS = (DAY, MONTH)
SHORT_ABOVE = 1.0  # of the pace that is left: beyond it, something must be done
EASY_BELOW = 0.7  # and below it less will do; between the two everything stays
THINS_LESS_BELOW = 0.45  # twice as much telemetry then stays below `SHORT_ABOVE`
FLUSH_STEP_MAX, FLUSH_STEP_BACK = 2.0, 0.8
KEEP_ONE_OF_MAX = 64
THIN_PART_MIN = (
    0.1  # of the day's bytes: where telemetry is less, to lose some of it would help nobody
)
KNOWN_PART = 0.2  # of the window: a pace measured over less says more about when we looked
BACK_MAX = timedelta(days=1)  # a clock that goes back by less begins no period again


@dataclass(frozen=True, slots=True)
class LinkAllowance:
    """The limits of a profile, in bytes; 0: without a limit. ``flush_s_max``: the longest flush."""

    day_bytes: int = 0
    month_bytes: int = 0
    flush_s_max: float = 60.0

    def of(self, period: str) -> int:
        """Return the bytes of a period, 0 for no limit."""
        return self.day_bytes if period == DAY else self.month_bytes


@dataclass(slots=True)
class Usage:
    """The bytes of one profile in one period, by kind. ``begins``: the first day of it, ISO 8601."""

    begins: str = ""
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def total(self) -> int:
        """Return the bytes of all kinds."""
        return sum(self.bytes.values())


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why the budget is short: of which period, how far beyond (1: as planned), and its largest kind."""

    period: str
    strain: float
    kind: str


class LinkBudget:
    """Counts, and decides how long flushes may be and how much telemetry is kept.

    ``flush_s``: the age at which points are framed now. ``keep_one_of``: how many messages of telemetry
    of a subject come to one that is kept; 1: all are.

    Args:
        flush_s: the age by configuration.
        allowances: by profile.
        window_s: the time over which the pace is measured; thinning waits for as long before each step.
    """

    def __init__(
        self, flush_s: float, allowances: dict[str, LinkAllowance], *, window_s: float = 900.0
    ) -> None:
        self.flush_s = self._flush_s_min = flush_s
        self.keep_one_of = 1
        self.profile = HOME
        self.shortage: Shortage | None = None
        self.usage = {each: {period: Usage() for period in PERIODS} for each in allowances}
        self._allowances = allowances
        self._window_s = window_s
        self._waiting = dict.fromkeys(KINDS, 0)  # written, not seen on the link yet
        self._fresh = 0  # bytes since the last step
        self._mean, self._weight = 0.0, 0.0
        self._stepped_s: float | None = None
        self._changed_s = -math.inf

    @property
    def limited(self) -> bool:
        """Whether any profile has a limit: without one nothing is ever changed."""
        return any(each.day_bytes or each.month_bytes for each in self._allowances.values())

    def written(self, kind: str, size: int) -> None:
        """Note that a message of a kind is in the ledger: it will be on the link some time."""
        self._waiting[kind] += size

    def carried(self, sent: int, received: int) -> None:
        """Note bytes that the link has carried, and charge them to kinds.

        The bytes sent belong to the messages that wait, by their share; all else is housekeeping.
        """
        waiting = sum(self._waiting.values())
        part = min(1.0, sent / waiting) if waiting else 0.0
        charged = {kind: int(size * part) for kind, size in self._waiting.items()}
        for kind, size in charged.items():
            self._waiting[kind] -= size
        charged[HOUSEKEEPING] += sent + received - sum(charged.values())
        for usage in self.usage[self.profile].values():
            for kind, size in charged.items():
                usage.bytes[kind] += size
        self._fresh += sent + received

    def enter(self, profile: str) -> None:
        """Count for another profile from now on; its pace is measured anew."""
        if profile != self.profile:
            self.profile = profile
            self._mean = self._weight = 0.0

    def step(self, now_s: float, now_ns: int | None) -> None:
        """Begin periods that are due, and adjust flush and thinning.

        Args:
            now_s: monotonic seconds.
            now_ns: ns since the Unix epoch; None while the time is not known: no period ends then.
        """
        now = None if now_ns is None else datetime.fromtimestamp(now_ns / 1e9, UTC)
        if now is not None:
            self._begin(now)
        self._measure(now_s)
        self.shortage, strain = self._short(now)
        allowance = self._allowances[self.profile]
        flush_s_max = max(self._flush_s_min, allowance.flush_s_max)
        if strain is None:  # no limit here, or nothing is known yet
            if not (allowance.day_bytes or allowance.month_bytes):
                self.flush_s, self.keep_one_of = self._flush_s_min, 1
            return
        waited = now_s - self._changed_s >= self._window_s
        if strain > SHORT_ABOVE:
            if self.flush_s < flush_s_max:
                self.flush_s = min(flush_s_max, self.flush_s * min(FLUSH_STEP_MAX, strain))
                self._changed_s = now_s
            elif (
                (waited or math.isinf(strain))
                and self.keep_one_of < KEEP_ONE_OF_MAX
                and self._telemetry_part() >= THIN_PART_MIN
            ):
                spent = math.isinf(strain)
                self.keep_one_of = KEEP_ONE_OF_MAX if spent else self.keep_one_of * 2
                self._changed_s = now_s
        elif strain < EASY_BELOW and waited:
            if self.keep_one_of > 1:
                if strain < THINS_LESS_BELOW:
                    self.keep_one_of //= 2
                    self._changed_s = now_s
            elif self.flush_s > self._flush_s_min:
                self.flush_s = max(self._flush_s_min, self.flush_s * FLUSH_STEP_BACK)
        self.flush_s = min(self.flush_s, flush_s_max)

    def pace_bytes_s(self) -> float | None:
        """Return the bytes that the link has carried a second lately; None: too little was seen."""
        return self._mean / self._weight if self._weight >= KNOWN_PART else None

    def status(self) -> dict[str, Any]:
        """Return an operator's view of it: bytes used by period and kind, and the measures in force."""
        allowance = self._allowances[self.profile]
        pace = self.pace_bytes_s()
        shortage = self.shortage
        return {
            "profile": self.profile,
            "limited": self.limited,
            **{
                period: {
                    "begins": usage.begins,
                    "bytes": usage.total,
                    "bytes_max": allowance.of(period),
                    "kinds": dict(usage.bytes),
                }
                for period, usage in self.usage[self.profile].items()
            },
            "pace_bytes_s": None if pace is None else round(pace, 1),
            "flush_s": round(self.flush_s, 3),
            "keep_one_of": self.keep_one_of,
            "short": shortage and f"{shortage.period}: {shortage.kind}",
        }

    def kept(self) -> dict[str, Any]:
        """Return the facts that a restart must not forget, as JSON's values; see `restore`."""
        return {
            "profile": self.profile,
            "flush_s": self.flush_s,
            "keep_one_of": self.keep_one_of,
            "waiting": self._waiting,
            "usage": {
                profile: {period: [usage.begins, usage.bytes] for period, usage in of.items()}
                for profile, of in self.usage.items()
            },
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on where a former run stopped.

        Raises:
            KeyError, TypeError, ValueError: this is none that `kept` made; nothing was changed.
        """
        usage = {
            profile: {
                period: Usage(str(begins), {kind: int(sizes.get(kind, 0)) for kind in KINDS})
                for period, (begins, sizes) in of.items()
            }
            for profile, of in kept["usage"].items()
        }
        for of in usage.values():
            for period in PERIODS:
                if of[period].begins:
                    datetime.fromisoformat(of[period].begins)
        flush_s, keep_one_of = float(kept["flush_s"]), int(kept["keep_one_of"])
        waiting = {kind: int(kept["waiting"].get(kind, 0)) for kind in KINDS}
        self.usage |= {each: of for each, of in usage.items() if each in self.usage}
        self._waiting = waiting
        if self.limited:
            self.flush_s = max(self._flush_s_min, flush_s)
            self.keep_one_of = min(max(1, keep_one_of), KEEP_ONE_OF_MAX)

    def _telemetry_part(self) -> float:
        usage = self.usage[self.profile][DAY]
        return usage.bytes[TELEMETRY_KIND] / max(1, usage.total)

    def _begin(self, now: datetime) -> None:
        for of in self.usage.values():
            for period, usage in of.items():
                begins = _begin_of(period, now)
                if usage.begins == begins:
                    continue
                known = usage.begins and datetime.fromisoformat(usage.begins).replace(tzinfo=UTC)
                if known and timedelta(0) < known - now <= BACK_MAX:
                    continue  # the clock went back over midnight: no budget twice
                # Bytes counted before the time was known belong to the period that it is now.
                of[period] = Usage(begins, usage.bytes if not known else dict.fromkeys(KINDS, 0))

    def _measure(self, now_s: float) -> None:
        before, self._stepped_s = self._stepped_s, now_s
        fresh, self._fresh = self._fresh, 0
        if before is None or now_s <= before:
            return
        stays = math.exp((before - now_s) / self._window_s)
        self._mean = self._mean * stays + fresh / (now_s - before) * (1 - stays)
        self._weight = self._weight * stays + (1 - stays)

    def _short(self, now: datetime | None) -> tuple[Shortage | None, float | None]:
        """Return why the budget is short, and the pace by the rest of it; None: nobody can tell."""
        pace, allowance = self.pace_bytes_s(), self._allowances[self.profile]
        worst: tuple[float, str] | None = None
        for period in PERIODS:
            if not (limit := allowance.of(period)):
                continue
            left = limit - self.usage[self.profile][period].total
            if left <= 0:
                strain = math.inf
            elif pace is None or now is None:
                continue
            else:
                strain = pace * _seconds_left(period, now) / left
            if worst is None or strain > worst[0]:
                worst = strain, period
        if worst is None:
            return None, None
        strain, period = worst
        if strain <= SHORT_ABOVE and self.keep_one_of == 1 and self.flush_s <= self._flush_s_min:
            return None, strain
        sizes = self.usage[self.profile][period].bytes
        return Shortage(period, strain, max(KINDS, key=sizes.__getitem__)), strain


def _begin_of(period: str, now: datetime) -> str:
    return (now.date() if period == DAY else now.date().replace(day=1)).isoformat()


def _seconds_left(period: str, now: datetime) -> float:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == DAY:
        end = midnight + timedelta(days=1)
    else:
        end = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return (end - now).total_seconds()
