"""The notices to come, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from backhaul_hub.alerts.alert import AlertKey, AlertRecord, alert_id
from backhaul_hub.alerts.plan import ChannelRule, Routes, ToldSoFar
from backhaul_hub.alerts.silences import Silences

NOBODY_FITS = "nobody: no route fits"


class Prospect(NamedTuple):
    """The notices to come for one alert."""

    alert: AlertRecord
    nobody: str
    """Why nobody is told for now; empty: somebody is."""
    channels: dict[str, str]
    """The next notices of each channel, in words."""

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        told = {"nobody": self.nobody, "channels": self.channels}
        return {"alert": self.alert.to_json(), **told}


def made_up(key: AlertKey, severity: Any, now_ns: int) -> AlertRecord:
    """Return an alert that is not there, as if it had been raised now."""
    text = "an alert that is not there"
    return AlertRecord(alert_id(key, now_ns), key, severity, text, "", now_ns, now_ns, now_ns)


def prospect(
    alert: AlertRecord,
    routes: Routes,
    silences: Silences,
    told: Mapping[str, ToldSoFar],
    now_ns: int,
) -> Prospect:
    """Return the notices to come for an open alert, by routes and silences as they are.

    Args:
        alert: an open one.
        routes: of hub.toml.
        silences: all that hold.
        told: the notices so far, by channel.
        now_ns: ns since the Unix epoch.
    """
    rules = routes.of(alert)
    places = routes.places(alert.key.device)
    nobody = ""
    if not rules:
        nobody = NOBODY_FITS
    elif alert.acked_ns:
        nobody = f"nobody until it is over: {alert.acked_by} takes care of it"
    elif until_ns := silences.until(alert, places, now_ns):
        nobody = f"nobody for {_span(until_ns - now_ns)}: it is silenced; then {', '.join(rules)}"
    found = {
        channel: _words(alert, rule, told.get(channel), now_ns) for channel, rule in rules.items()
    }
    return Prospect(alert, nobody, found)


def _words(alert: AlertRecord, rule: ChannelRule, told: ToldSoFar | None, now_ns: int) -> str:
    parts = []
    if told is not None:
        parts.append(f"was told {told.times} times")
        if rule.repeat_ns:
            parts.append(f"again {_at(told.last_ns + rule.repeat_ns, now_ns)}")
    else:
        parts.append(f"is told {_at(alert.heard_ns + rule.hold_ns, now_ns)}")
        if rule.repeat_ns:
            parts.append(f"again every {_span(rule.repeat_ns)}")
    if rule.recovery:
        parts.append("and when it is over")
    return ", ".join(parts)


def _at(at_ns: int, now_ns: int) -> str:
    return f"in {_span(at_ns - now_ns)}" if at_ns > now_ns else "now"


def _span(span_ns: int) -> str:
    seconds = max(0, round(span_ns / 1e9))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size or (seconds and seconds % size == 0):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"
