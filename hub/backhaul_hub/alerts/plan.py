"""The notices that are due: routes, hold, repeat, recovery, and silence. Pure.

    a channel hears of an alert  once it has been open for the route's `hold_s` since the hub heard of it
    again                        each `repeat_s`, while nobody has acknowledged it
    that it is over              once, if the channel was told of it and the route says `recovery`
    nothing                      while a silence holds; but the end of what was told is told also then

All that was told is in hub.db together with the notice: a restart tells nothing twice, and forgets nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from backhaul_hub.alert_settings import AlertsSection, Route
from backhaul_hub.alerts.alert import AlertRecord, rank
from backhaul_hub.alerts.silences import Silences, fits
from backhaul_hub.device import FLEET

NoticeKind = Literal["raised", "repeated", "over"]


class ToldSoFar(NamedTuple):
    """The notices of an alert over one channel so far."""

    times: int
    """Notices of it as open; 0 stands for none."""
    last_ns: int
    """The last of them; ns since the Unix epoch."""


class Notice(NamedTuple):
    """One thing to tell over one channel."""

    id: str
    """The same however often it is made: a receiver may know it by that."""
    channel: str
    kind: NoticeKind
    alert: AlertRecord
    made_ns: int


class Step(NamedTuple):
    """The notices that are due for one alert, and the time to look at it again."""

    notices: list[Notice]
    next_ns: int
    """0: only once it changes."""


class ChannelRule(NamedTuple):
    """A route to one channel, with the settings that hold for it."""

    hold_ns: int
    repeat_ns: int
    recovery: bool


class Routes:
    """The routes of hub.toml.

    Args:
        places: returns a device and all groups that it is below; of "" the fleet alone.
    """

    def __init__(self, settings: AlertsSection, places: Callable[[str], Collection[str]]) -> None:
        self._settings = settings
        self.places = places

    def of(self, alert: AlertRecord) -> dict[str, ChannelRule]:
        """Return the channels that an alert goes over; the first route that fits decides for a channel."""
        places = self.places(alert.key.device)
        found: dict[str, ChannelRule] = {}
        for route in self._settings.routes:
            if not _fits(route, alert, places):
                continue
            for channel in route.channels:
                found.setdefault(channel, self._rule(route))
        return found

    def _rule(self, route: Route) -> ChannelRule:
        settings = self._settings
        hold_s = settings.hold_s if route.hold_s is None else route.hold_s
        repeat_s = settings.repeat_s if route.repeat_s is None else route.repeat_s
        return ChannelRule(int(hold_s * 1e9), int(repeat_s * 1e9), route.recovery)


def _fits(route: Route, alert: AlertRecord, places: Collection[str]) -> bool:
    key = alert.key
    return (
        rank(route.severity) <= rank(alert.severity)
        and (not route.sources or key.source in route.sources)
        and (not route.names or any(fits(key.name, each) for each in route.names))
        and (not route.groups or any(each in places for each in route.groups))
    )


def step(
    alert: AlertRecord,
    rules: Mapping[str, ChannelRule],
    told: dict[str, ToldSoFar],
    silent_until_ns: int,
    now_ns: int,
) -> Step:
    """Return the notices that are due for an alert now.

    Args:
        alert: as it is now, open or over.
        rules: of the channels that it goes over.
        told: the notices of it so far, by channel; those that are due now are noted there.
        silent_until_ns: until when it is silenced; 0: it is not.
        now_ns: ns since the Unix epoch.
    """
    if alert.ended_ns:
        over = [
            _notice(alert, channel, "over", 0, now_ns)
            for channel, each in told.items()
            if each.times and (rule := rules.get(channel)) and rule.recovery
        ]
        told.clear()
        return Step(over, 0)
    if alert.acked_ns:
        return Step([], 0)
    if silent_until_ns:
        return Step([], silent_until_ns)
    notices, later = [], []
    for channel, rule in rules.items():
        before = told.get(channel, ToldSoFar(0, 0))
        due_ns = before.last_ns + rule.repeat_ns if before.times else alert.heard_ns + rule.hold_ns
        if before.times and not rule.repeat_ns:
            continue
        if due_ns > now_ns:
            later.append(due_ns)
            continue
        kind: NoticeKind = "repeated" if before.times else "raised"
        notices.append(_notice(alert, channel, kind, before.times, now_ns))
        told[channel] = ToldSoFar(before.times + 1, now_ns)
        if rule.repeat_ns:
            later.append(now_ns + rule.repeat_ns)
    return Step(notices, min(later, default=0))


def _notice(alert: AlertRecord, channel: str, kind: NoticeKind, number: int, now_ns: int) -> Notice:
    name = "over" if kind == "over" else f"{number + 1}"
    return Notice(f"{alert.id}.{name}.{channel}", channel, kind, alert, now_ns)


class NoticePlan:
    """Looks at each alert when something may be due for it.

    Args:
        waits: tells whether a notice of an alert (id) still waits for a channel: then it is not repeated.
    """

    def __init__(
        self,
        routes: Routes,
        silences: Silences,
        waits: Callable[[str, str], bool],
        told: Mapping[str, dict[str, ToldSoFar]],
    ) -> None:
        self._routes = routes
        self._silences = silences
        self._waits = waits
        self._told = dict(told)
        self._alerts: dict[str, AlertRecord] = {}
        self._due: list[tuple[int, str]] = []
        self._next_ns: dict[str, int] = {}

    def changed(self, alerts: Iterable[AlertRecord]) -> None:
        """Take in alerts that are new, changed or over: each is looked at next."""
        for each in alerts:
            self._alerts[each.id] = each
            self._look_at(each.id, 0)

    def look_again(self) -> None:
        """Look at all next: silences, groups or routes have changed."""
        for id_ in self._alerts:
            self._look_at(id_, 0)

    def due(self, now_ns: int) -> tuple[list[Notice], dict[str, dict[str, ToldSoFar]]]:
        """Return the notices that are due, and with them the notices of their alerts so far.

        Of an alert that is over nothing is told any more, so an empty mapping stands for it.
        """
        notices: list[Notice] = []
        told: dict[str, dict[str, ToldSoFar]] = {}
        while self._due and self._due[0][0] <= now_ns:
            due_ns, id_ = heapq.heappop(self._due)
            if self._next_ns.get(id_) != due_ns:
                continue  # looked at since, or to be looked at at another time
            del self._next_ns[id_]
            alert = self._alerts[id_]
            known = self._told.setdefault(id_, {})
            found = self._step(alert, known, now_ns)
            notices += found.notices
            if alert.ended_ns:
                del self._alerts[id_], self._told[id_]
                told[id_] = {}
                continue
            if found.notices:
                told[id_] = dict(known)
            if found.next_ns:
                self._look_at(id_, found.next_ns)
        return notices, told

    def _step(self, alert: AlertRecord, told: dict[str, ToldSoFar], now_ns: int) -> Step:
        places = self._routes.places(alert.key.device)
        silent_ns = self._silences.until(alert, places, now_ns)
        rules = self._routes.of(alert)
        if not alert.ended_ns:
            # A notice that still waits for a channel, as one that fails, is not followed by its repetition.
            waiting = [each for each in rules if told.get(each) and self._waits(alert.id, each)]
            again_ns = [now_ns + rules.pop(each).repeat_ns for each in waiting]
            found = step(alert, rules, told, silent_ns, now_ns)
            later = [each for each in (found.next_ns, *again_ns) if each > now_ns]
            return found._replace(next_ns=min(later, default=0))
        return step(alert, rules, told, silent_ns, now_ns)

    def _look_at(self, id_: str, at_ns: int) -> None:
        if self._next_ns.get(id_) != at_ns:
            self._next_ns[id_] = at_ns
            heapq.heappush(self._due, (at_ns, id_))


def places_of(device: str, ancestors: Callable[[str], Iterable[str]]) -> Sequence[str]:
    """Return the places that an alert of a device is below: itself, its groups, and the fleet; of "" the fleet alone."""
    return [FLEET] if not device else [device, *ancestors(device), FLEET]
