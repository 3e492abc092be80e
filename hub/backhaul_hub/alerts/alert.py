"""One alert: that something is wrong, from when it was first said until it is over. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple
from unicodedata import category

from backhaul_codec.assurance.conditions import Condition
from backhaul_codec.assurance.conditions import Severity as ConditionSeverity
from backhaul_hub.alert_settings import SEVERITIES, Severity
from backhaul_hub.device import FLEET
from backhaul_hub.timestamps import rfc3339
from backhaul_hub.twin.event_log import VehicleEvent

NAME_MAX, ABOUT_MAX, TEXT_MAX = 64, 200, 500
"""Characters that are kept of words that vehicles or rules say."""
ANOMALY = "anomaly."
"""How the rule of an anomaly's alert begins; the kind of the anomaly follows."""
_OF_CONDITION: dict[ConditionSeverity, Severity] = {
    ConditionSeverity.ERROR: "critical",
    ConditionSeverity.WARNING: "warning",
    ConditionSeverity.INFO: "info",
}


class AlertKey(NamedTuple):
    """The matter of an alert: of one matter one alert is open at most."""

    source: str
    """rule, health or anomaly."""
    device: str
    """Empty: it is the hub's own, or the fleet's."""
    name: str
    """The rule's name, or the condition's code."""
    about: str
    """A lane, stream, series or channel; empty: none."""


class AlertWord(NamedTuple):
    """A source's word on a matter: that it is wrong, or that it is over."""

    key: AlertKey
    raised: bool
    severity: Severity
    text: str
    hint: str
    time_ns: int
    """When it happened, ns since the Unix epoch."""
    late: bool = False
    """Whether it was old news when the hub heard it."""


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """One alert. All times are ns since the Unix epoch, 0 for never."""

    id: str
    key: AlertKey
    severity: Severity
    text: str
    hint: str
    since_ns: int
    heard_ns: int
    """When the hub first heard of it."""
    seen_ns: int
    """When the hub last heard of it."""
    late: bool = False
    ended_ns: int = 0
    ended_why: str = ""
    """`cleared` by its source, or `lapsed`: nothing was heard of it any more."""
    acked_ns: int = 0
    acked_by: str = ""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as people and programs are told it."""
        said: dict[str, Any] = {
            "id": self.id,
            **self.key._asdict(),
            "severity": self.severity,
            "state": "past" if self.ended_ns else "open",
            "text": self.text,
            "hint": self.hint,
            "since": rfc3339(self.since_ns),
            "since_ns": self.since_ns,
            "heard_ns": self.heard_ns,
            "seen_ns": self.seen_ns,
            "late": self.late,
            "ended_ns": self.ended_ns or None,
            "ended_why": self.ended_why,
        }
        acked = {"by": self.acked_by, "time_ns": self.acked_ns, "note": self.note}
        return said | {"acknowledged": acked if self.acked_ns else None}


def alert_id(key: AlertKey, since_ns: int) -> str:
    """Return the name of an alert, the same however often it is made: 16 hexadecimal digits."""
    said = "\0".join((*key, str(since_ns)))
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]


def rank(severity: Severity) -> int:
    """Return how bad it is: more is worse."""
    return SEVERITIES.index(severity)


def plain(text: str, characters_max: int) -> str:
    """Return somebody else's text as part of a line, of bounded length.

    Each character that ends a line, steers a terminal or turns the order of letters becomes a space: an alert's text goes
    into subjects of mails and titles on phones.
    """
    # Bounded before it is looked at: each character costs.
    some = text[: 2 * characters_max]
    if not some.isprintable():
        some = "".join(" " if category(each)[0] in "CZ" else each for each in some)
    line = " ".join(some.split())
    cut = len(line) > characters_max or len(text) > 2 * characters_max
    return f"{line[: characters_max - 1]}…" if cut else line


def word_of_alert(event: VehicleEvent) -> AlertWord | None:
    """Return the word of an alert of the twin job, or of an anomaly; None where it is none."""
    data = event.said.get("data")
    if not isinstance(data, dict):
        return None
    rule, kind, severity = (data.get(name) for name in ("rule", "kind", "severity"))
    known = next((each for each in SEVERITIES if each == severity), None)
    if not isinstance(rule, str) or not rule or kind not in ("raised", "cleared") or known is None:
        return None
    name = plain(rule, NAME_MAX)
    series = [each for each in (data.get(part) for part in ("node", "type", "key")) if each]
    about = plain(".".join(map(str, series)), ABOUT_MAX)
    device = "" if event.device == FLEET else event.device
    is_anomaly = name.startswith(ANOMALY)
    # A rule has one open alert for a device, whichever of its series was the worst; an anomaly is of a series.
    key = (
        AlertKey("anomaly", device, name, about)
        if is_anomaly
        else AlertKey("rule", device, name, "")
    )
    text = plain(str(event.said.get("reason", "")), TEXT_MAX)
    hint = f"see: backhaul-hub events {device} --kind alert"
    if is_anomaly:
        hint = "see: backhaul-spark anomalies, and the page of that day (backhaul-spark report)"
    late = data.get("late") is True
    return AlertWord(key, kind == "raised", known, text, hint, event.time, late)


def key_of_condition(code: str, device: str, about: str) -> AlertKey:
    """Return the matter of a condition."""
    return AlertKey("health", device, code, plain(about, ABOUT_MAX))


def severity_of_condition(condition: Condition) -> Severity:
    """Return how bad the alert of a condition is."""
    return _OF_CONDITION[condition.severity]


def word_of_condition(condition: Condition) -> AlertWord:
    """Return the word of a condition that is shown."""
    detail = f": {condition.detail}" if condition.detail else ""
    return AlertWord(
        key_of_condition(condition.code, condition.device, condition.about),
        True,
        severity_of_condition(condition),
        plain(f"{condition.title}{detail}", TEXT_MAX),
        plain(condition.hint, TEXT_MAX),
        condition.since_ns,
    )
