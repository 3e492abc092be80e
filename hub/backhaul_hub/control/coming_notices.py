"""The notices to come, by hub.db and hub.toml: the work behind `backhaul-hub notify dry-run`."""

from __future__ import annotations

from collections.abc import Callable

from backhaul_hub import questions
from backhaul_hub.alert_settings import AlertsSection
from backhaul_hub.alerts import rows
from backhaul_hub.alerts.alert import AlertKey, AlertRecord
from backhaul_hub.alerts.dry_run import Prospect, made_up, prospect
from backhaul_hub.alerts.plan import Routes, places_of
from backhaul_hub.alerts.silences import Silences
from backhaul_hub.db.store import Registry
from backhaul_hub.people.credentials import tree_above


async def coming_notices(
    registry: Registry, settings: AlertsSection, question: questions.DryRun, now_ns: int
) -> tuple[list[Prospect], list[str]]:
    """Return the notices to come, and the groups of routes that are not in the tree. Raises: RegistryError."""
    tree = await tree_above(registry)
    silences = Silences(await rows.silences(registry))
    told = await rows.told_of(registry)
    known = await rows.known_alerts(registry)
    places: Callable[[str], list[str]] = lambda device: [*places_of(device, tree.ancestors)]
    routes = Routes(settings, places)
    asked = _asked(question, now_ns)
    alerts = [each for each in known if not each.ended_ns] if asked is None else [asked]
    named = {group for route in settings.routes for group in route.groups}
    unknown = sorted(group for group in named if not tree.attached(group))
    found = [prospect(each, routes, silences, told.get(each.id, {}), now_ns) for each in alerts]
    return found, unknown


def _asked(question: questions.DryRun, now_ns: int) -> AlertRecord | None:
    """Return the alert that is not there; None: the open ones are asked for."""
    device, severity = question.device, question.severity
    name, source = question.name, question.source
    if all(each is None for each in (device, severity, name, source)):
        return None
    key = AlertKey(source or ("rule" if device else "health"), device or "", name or "NAME", "")
    return made_up(key, severity or "critical", now_ns)
