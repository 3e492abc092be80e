"""The open alerts, and how each came and went. Pure.

A rule's alert is open from `raised` to `cleared`. A condition's is open while the hub's health finds it, also while
another one hides it. An anomaly's, and one that came late, lapses where nothing is heard of it for long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from backhaul_codec.assurance.conditions import Condition
from backhaul_hub.alerts.alert import (
    TEXT_MAX,
    AlertKey,
    AlertRecord,
    AlertWord,
    alert_id,
    key_of_condition,
    plain,
    rank,
    severity_of_condition,
    word_of_condition,
)
from backhaul_hub.errors import HubError

_HOUR_NS = 3600 * 1_000_000_000
LAPSES_NS = 48 * _HOUR_NS
"""An anomaly of which no further day speaks is over then; so is a late alert whose end never came."""
_ENDS_MAX = 100_000

Lasting = Collection[tuple[str, str, str]]
"""(code, device, about) of conditions that are found, whether they are shown or not."""


class AlertBook:
    """The alerts of one hub.

    Args:
        open_max: so many may be open; further ones are counted in `beyond`, and not opened.
    """

    def __init__(self, open_max: int) -> None:
        self.open: dict[str, AlertRecord] = {}
        """By id."""
        self.beyond = 0
        self._open_max = open_max
        self._by_key: dict[AlertKey, str] = {}
        # When rules' alerts that are over ended, by the vehicles' time: a late word may come after.
        self._ended_ns: OrderedDict[AlertKey, int] = OrderedDict()
        self._changed: dict[str, AlertRecord] = {}

    def restore(self, alerts: Iterable[AlertRecord]) -> None:
        """Take in the alerts of hub.db, the oldest first: all that are open, and the newest past ones."""
        for each in alerts:
            if each.ended_ns:
                self._note_end(each.key, each.ended_ns)
            else:
                self.open[each.id] = each
                self._by_key[each.key] = each.id

    def take_changed(self) -> list[AlertRecord]:
        """Return the alerts that are new or changed since the last call, in that order."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def hear(self, word: AlertWord, now_ns: int) -> None:
        """Take in one word; `now_ns` is when the hub hears it."""
        known = self._by_key.get(word.key)
        if not word.raised:
            if known is not None and word.time_ns >= self.open[known].since_ns:
                self._end(self.open[known], word.time_ns, "cleared")
            elif known is None:
                self._note_end(word.key, word.time_ns)
        elif known is not None:
            self._hear_again(self.open[known], word, now_ns)
        elif not word.late or word.time_ns > self._ended_ns.get(word.key, 0):
            self._begin(word, now_ns)

    def look(
        self,
        shown: Iterable[Condition],
        lasting: Lasting,
        now_ns: int,
        settled: Callable[[str], bool],
    ) -> None:
        """Take in one look at the hub's health.

        Args:
            shown: the conditions that are shown.
            lasting: those that are found, also where another one hides them.
            now_ns: of the look.
            settled: tells of a condition's code whether the hub has run long enough to find it again: before that
                a condition that is not found is not over.
        """
        there = set()
        for condition in shown:
            key = key_of_condition(condition.code, condition.device, condition.about)
            there.add(key)
            known = self.open.get(self._by_key.get(key, ""))
            if known is None:
                self._begin(word_of_condition(condition), now_ns)
            elif rank(severity_of_condition(condition)) > rank(known.severity):
                self._hear_again(known, word_of_condition(condition), now_ns)
            # Figures that move are no change of it.
        found = {key_of_condition(*each) for each in lasting}
        for alert in list(self.open.values()):
            key = alert.key
            if key.source != "health" or key in there or key in found or not settled(key.name):
                continue
            self._end(alert, now_ns, "cleared")

    def expire(self, now_ns: int) -> None:
        """End the alerts of which nothing was heard for too long."""
        for alert in list(self.open.values()):
            mortal = alert.key.source == "anomaly" or (alert.key.source == "rule" and alert.late)
            if mortal and now_ns - alert.seen_ns >= LAPSES_NS:
                self._end(alert, now_ns, "lapsed")

    def acknowledge(self, id_: str, who: str, note: str, now_ns: int) -> AlertRecord:
        """Record that somebody takes care of an open alert; the first who says so stands.

        Raises:
            HubError: no such alert is open.
        """
        alert = self.open.get(id_)
        if alert is None:
            raise HubError(f"no alert {id_[:40]!r} is open", hint="see: backhaul-hub alerts")
        if alert.acked_ns:
            return alert
        note = plain(note, TEXT_MAX)
        return self._put(replace(alert, acked_ns=now_ns, acked_by=who, note=note))

    def _begin(self, word: AlertWord, now_ns: int) -> None:
        if len(self.open) >= self._open_max:
            self.beyond += 1
            return
        id_ = alert_id(word.key, word.time_ns)
        self._by_key[word.key] = id_
        self._put(
            AlertRecord(
                *(id_, word.key, word.severity, word.text, word.hint, word.time_ns),
                *(now_ns, now_ns, word.late),
            )
        )

    def _hear_again(self, alert: AlertRecord, word: AlertWord, now_ns: int) -> None:
        """Take in that an open alert is still so."""
        worse = rank(word.severity) > rank(alert.severity)
        severity = word.severity if worse else alert.severity
        late = alert.late and word.late
        self._put(replace(alert, severity=severity, text=word.text, seen_ns=now_ns, late=late))

    def _end(self, alert: AlertRecord, ended_ns: int, why: str) -> None:
        ended = replace(alert, ended_ns=max(ended_ns, 1), ended_why=why)
        del self.open[alert.id], self._by_key[alert.key]
        self._changed[alert.id] = ended
        self._note_end(alert.key, ended_ns)

    def _note_end(self, key: AlertKey, ended_ns: int) -> None:
        if key.source != "rule":
            return
        self._ended_ns[key] = max(ended_ns, self._ended_ns.pop(key, 0))
        while len(self._ended_ns) > _ENDS_MAX:
            self._ended_ns.popitem(last=False)

    def _put(self, alert: AlertRecord) -> AlertRecord:
        self.open[alert.id] = self._changed[alert.id] = alert
        return alert
