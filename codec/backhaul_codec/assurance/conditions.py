"""Coded conditions: cause, severity, since when, and the remedy. Pure.

A component has a table of kinds (`Kind`) and looks around now and then; what it finds (`Finding`) goes
to `Conditions.note`. A brief fault stays hidden until it has lasted, one that was shown stays for a
moment after it was last found, and one that follows from another stays hidden behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from backhaul_codec.state.point_text import shown

CLEAR_S = 10.0
"""What was shown is gone once it was not found for so long: it does not flicker."""


class Severity(StrEnum):
    """How bad a condition is."""

    ERROR = "error"
    """Something is lost, or will be, unless somebody acts."""
    WARNING = "warning"
    """Somebody should look; nothing is lost."""
    INFO = "info"
    """Good to know."""


WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of condition. ``code`` is stable: scripts and alerts name it.

    ``after_s``: for how long it must be found before it is shown. ``depends_on``: codes of what
    explains it: found for the same device (or for no device at all), they hide it.
    """

    code: str
    severity: Severity
    title: str
    hint: str
    after_s: float = 0.0
    depends_on: tuple[str, ...] = ()


class Place(NamedTuple):
    """The subject of a condition: a device ("" for none), and a lane, stream or consumer of it."""

    device: str = ""
    about: str = ""


class Finding(NamedTuple):
    """The finding of one look. ``detail``: the figures, for people; it may change while it lasts."""

    code: str
    place: Place = Place()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that is shown. ``since_ns``: when it was first found, ns since the Unix epoch."""

    code: str
    severity: Severity
    title: str
    hint: str
    device: str
    about: str
    detail: str
    since_ns: int

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


@dataclass(slots=True)
class _Lasting:
    """A condition that was found and is not gone."""

    since_ns: int
    since_s: float
    found_s: float
    detail: str
    shown: bool = False


class Conditions:
    """Which conditions hold.

    Args:
        kinds: every kind that may be found.
        patience: multiplies the times until conditions are shown and cleared; 0: at once.
    """

    def __init__(self, kinds: Sequence[Kind], patience: float = 1.0) -> None:
        self._kinds = {kind.code: kind for kind in kinds}
        self._order = {kind.code: number for number, kind in enumerate(kinds)}
        assert len(self._kinds) == len(kinds)
        self._patience = patience
        self._lasting: dict[tuple[str, Place], _Lasting] = {}

    def note(self, findings: Iterable[Finding], now_s: float, now_ns: int) -> None:
        """Take in all that one look has found.

        Args:
            findings: of kinds that are known; what is not among them was not found this time.
            now_s: monotonic seconds.
            now_ns: ns since the Unix epoch.

        Raises:
            KeyError: a finding is of no known kind.
        """
        for code, place, detail in findings:
            kind = self._kinds[code]
            known = self._lasting.get((code, place))
            if known is None:
                known = self._lasting[code, place] = _Lasting(now_ns, now_s, now_s, detail)
            known.found_s, known.detail = now_s, detail
            known.shown = known.shown or now_s - known.since_s >= kind.after_s * self._patience
        for key, known in list(self._lasting.items()):
            gone_s = now_s - known.found_s
            if gone_s > 0 and (not known.shown or gone_s >= CLEAR_S * self._patience):
                del self._lasting[key]

    def shown(self) -> list[Condition]:
        """Return the conditions to show: worst first, then as the kinds are listed, then by place."""
        there = {(code, place.device) for code, place in self._lasting}
        found = [
            self._condition(code, place, known)
            for (code, place), known in self._lasting.items()
            if known.shown and not self._explained(code, place, there)
        ]
        return sorted(found, key=lambda each: (*self._rank(each), each.device, each.about))

    def lasting(self) -> set[tuple[str, str, str]]:
        """Return (code, device, about) of all that was found and is not gone, shown or not, hidden or not."""
        return {(code, *place) for code, place in self._lasting}

    def after_s(self, code: str) -> float:
        """Return for how many seconds a condition must be found before it is shown."""
        return self._kinds[code].after_s * self._patience

    def _rank(self, condition: Condition) -> tuple[int, int]:
        return WORST_FIRST.index(condition.severity), self._order[condition.code]

    def _explained(self, code: str, place: Place, there: set[tuple[str, str]]) -> bool:
        """Say whether another condition, shown already or not, is the reason for this one."""
        causes = self._kinds[code].depends_on
        return any((cause, device) in there for cause in causes for device in (place.device, ""))

    def _condition(self, code: str, place: Place, known: _Lasting) -> Condition:
        kind = self._kinds[code]
        return Condition(
            code, kind.severity, kind.title, kind.hint, *place, known.detail, known.since_ns
        )


def counts(conditions: Iterable[Condition]) -> dict[str, int]:
    """Return how many there are of each code."""
    found: dict[str, int] = {}
    for condition in conditions:
        found[condition.code] = found.get(condition.code, 0) + 1
    return found


class Growth:
    """Whether a count has grown lately: it tells for ``lasting_s`` after the last time it did.

    ``begins_at_0``: what was not there before has grown from 0, else nobody knows from where.
    """

    def __init__(self, lasting_s: float, *, begins_at_0: bool = False) -> None:
        self._lasting_s = lasting_s
        self._begins_at_0 = begins_at_0
        self._known: dict[str, int] = {}
        self._grown: dict[str, tuple[float, int]] = {}

    def lately(self, totals: Mapping[str, int], now_s: float) -> dict[str, int]:
        """Take the totals in; return by how much each has grown since it began to, where it has.

        The first look only learns where each stands; a total that falls is learnt anew.
        """
        self._grown = {
            key: (at_s, more)
            for key, (at_s, more) in self._grown.items()
            if now_s - at_s < self._lasting_s
        }
        for key, total in totals.items():
            known = self._known.get(key, 0 if self._begins_at_0 else total)
            if total > known:
                _, before = self._grown.get(key, (now_s, 0))
                self._grown[key] = (now_s, before + total - known)
            self._known[key] = total
        return {key: more for key, (_, more) in self._grown.items()}


def page_lines(conditions: Sequence[Mapping[str, Any]], now_ns: int) -> list[str]:
    """Return conditions, as JSON says them, for people: two lines each."""
    lines = []
    for each in conditions:
        where = " ".join(part for part in (each["device"], each["about"]) if part)
        detail = f": {shown(each['detail'])}" if each["detail"] else ""
        age_s = max(0, now_ns - each["since_ns"]) // 1_000_000_000
        place = f" {where}" if where else ""
        lines += [
            f"{each['severity']:<8}{each['code']}{place}, {each['title']}{detail} (for {age_s} s)",
            f"        {each['hint']}",
        ]
    return lines
