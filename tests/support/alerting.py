"""Words, alerts and notices for tests of alerts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from backhaul_codec.assurance.conditions import Condition, Severity
from backhaul_hub.alert_settings import AlertsSection
from backhaul_hub.alerts.alert import AlertKey, AlertRecord, AlertWord
from backhaul_hub.alerts.dry_run import made_up
from backhaul_hub.alerts.plan import Notice

S = 1_000_000_000
T0 = 1_777_636_800 * S
"""2026-05-01T12:00:00Z."""
HOT = AlertKey("rule", "VID-001", "too-hot", "")
LINK = AlertKey("health", "VID-001", "link-down", "")


def raised(
    key: AlertKey = HOT, at_s: float = 0, severity: Any = "critical", **more: Any
) -> AlertWord:
    return AlertWord(key, True, severity, "61 °C", "see it", T0 + int(at_s * S), **more)


def cleared(key: AlertKey = HOT, at_s: float = 0, **more: Any) -> AlertWord:
    return AlertWord(key, False, "critical", "cool again", "", T0 + int(at_s * S), **more)


def condition(code: str = "link-down", device: str = "VID-001", **more: Any) -> Condition:
    known: dict[str, Any] = {
        "title": "the link is down",
        "hint": "look",
        "about": "",
        "detail": "",
        "since_ns": T0,
    }
    severity = more.pop("severity", Severity.WARNING)
    return Condition(code=code, device=device, severity=severity, **known | more)


def alert(
    key: AlertKey = HOT, at_s: float = 0, severity: Any = "critical", **more: Any
) -> AlertRecord:
    return replace(made_up(key, severity, T0 + int(at_s * S)), **more)


def settings(*routes: dict[str, Any], **more: Any) -> AlertsSection:
    """Return `[alerts]` with webhooks `a` and `b`, and these routes."""
    hook = {"kind": "webhook", "url": "https://example.org/hook"}
    raw = {"channels": {"a": hook, "b": hook}, "routes": list(routes), "hold_s": 60.0, **more}
    return msgspec.convert(raw, AlertsSection)


def notice(number: int = 1, kind: Any = "raised", channel: str = "a", **more: Any) -> Notice:
    about = alert(AlertKey("rule", f"VID-{number:03}", "too-hot", ""), **more)
    return Notice(f"{about.id}.{kind}.{channel}", channel, kind, about, T0)
