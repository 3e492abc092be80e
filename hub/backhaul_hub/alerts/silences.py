"""Silences: for a time nobody is told of some alerts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from backhaul_hub.alerts.alert import ABOUT_MAX, TEXT_MAX, AlertRecord, plain
from backhaul_hub.errors import HubError

SILENCES_MAX = 1000
FOR_S_MAX = 30 * 86_400


@dataclass(frozen=True, slots=True)
class AlertSilence:
    """One silence. Times are ns since the Unix epoch."""

    id: int
    place: str
    """A group or a device; `fleet`: everything."""
    name: str
    """A rule or a condition's code, * for any; empty: all."""
    from_ns: int
    until_ns: int
    who: str
    why: str
    ended_ns: int = 0
    """When somebody ended it before its time; 0: nobody did."""
    ended_by: str = ""

    def covers(self, alert: AlertRecord, places: Collection[str], now_ns: int) -> bool:
        """Tell whether it holds now for an alert, which is below `places`."""
        holds = not self.ended_ns and self.from_ns <= now_ns < self.until_ns
        return holds and self.place in places and fits(alert.key.name, self.name)

    def to_json(self, now_ns: int) -> dict[str, Any]:
        """Return it as people and programs are told it."""
        return {
            "id": self.id,
            "group": self.place,
            "name": self.name,
            "from_ns": self.from_ns,
            "until_ns": self.until_ns,
            "who": self.who,
            "why": self.why,
            "holds": not self.ended_ns and now_ns < self.until_ns,
            "ended_ns": self.ended_ns or None,
            "ended_by": self.ended_by,
        }


class Silences:
    """All silences that hold, or may still be looked up."""

    def __init__(self, known: Iterable[AlertSilence] = ()) -> None:
        self._all = {each.id: each for each in known}
        self._changed: dict[int, AlertSilence] = {}

    def now(self, now_ns: int) -> list[AlertSilence]:
        """Return those that hold, by id."""
        return [
            each
            for _, each in sorted(self._all.items())
            if not each.ended_ns and now_ns < each.until_ns
        ]

    def until(self, alert: AlertRecord, places: Collection[str], now_ns: int) -> int:
        """Return until when an alert is silent, ns since the Unix epoch; 0: it is not."""
        ends = [each.until_ns for each in self._all.values() if each.covers(alert, places, now_ns)]
        return max(ends, default=0)

    def begin(
        self, place: str, name: str, for_s: float, who: str, why: str, now_ns: int
    ) -> AlertSilence:
        """Begin one.

        Raises:
            HubError: there are too many, or it is too long.
        """
        if not 0 < for_s <= FOR_S_MAX:
            raise HubError(f"for {for_s:g} s: more than 0, and {FOR_S_MAX} (30 days) at most")
        if len(self.now(now_ns)) >= SILENCES_MAX:
            raise HubError(
                f"{SILENCES_MAX} silences hold already",
                hint="end some: backhaul-hub alerts unsilence ID",
            )
        until_ns = now_ns + int(for_s * 1e9)
        id_ = max(self._all, default=0) + 1
        name, why = plain(name, ABOUT_MAX), plain(why, TEXT_MAX)
        return self._put(AlertSilence(id_, place, name, now_ns, until_ns, who, why))

    def get(self, id_: int, now_ns: int) -> AlertSilence:
        """Return one that holds. Raises: HubError: none of this number does."""
        known = self._all.get(id_)
        if known is None or known.ended_ns or now_ns >= known.until_ns:
            raise HubError(f"no silence {id_} holds", hint="see: backhaul-hub alerts silences")
        return known

    def end(self, id_: int, who: str, now_ns: int) -> AlertSilence:
        """End one before its time. Raises: HubError: it does not hold."""
        return self._put(replace(self.get(id_, now_ns), ended_ns=now_ns, ended_by=who))

    def take_changed(self) -> list[AlertSilence]:
        """Return those that are new or changed since the last call."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def _put(self, silence: AlertSilence) -> AlertSilence:
        self._all[silence.id] = self._changed[silence.id] = silence
        return silence


def fits(name: str, pattern: str) -> bool:
    """Tell whether a rule's name or a condition's code is meant; an empty pattern means all."""
    return not pattern or fnmatchcase(name, pattern)
