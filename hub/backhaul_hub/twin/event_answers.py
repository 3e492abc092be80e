"""Answers about events: each event once, the newest last, and in which hours some may be missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from nats.aio.client import Client

from backhaul_codec.assurance.completeness import HOUR_NS, HourReport, hours_between
from backhaul_codec.assurance.completeness_text import hour
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.lane_records.completeness import hour_reports_of
from backhaul_hub.questions import Events
from backhaul_hub.twin.event_log import EventLog, find_events, hiding

HOURS_MAX = 24 * 366


async def events_answer(
    client: Client,
    env: str,
    registry: Registry,
    question: Events,
    now_ns: int,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return events, and how the hours of each device stand; of all devices, or `only` these.

    Raises:
        HubError: no such device, too many hours; or server or hub.db did not answer.
    """
    hours = hours_between(question.since_ns // HOUR_NS * HOUR_NS, now_ns)
    if len(hours) > HOURS_MAX:
        raise HubError(f"since {len(hours)} hours ago: {HOURS_MAX} at most")
    devices = sorted(await read_devices(registry) if only is None else only)
    if question.device is not None and question.device not in devices:
        raise RegistryError(
            f"there is no device {question.device}", hint="list them with: backhaul-hub devices"
        )
    asked = devices if question.device is None else [question.device]
    # First the hours, then the events: of an hour that is complete by now, all are found.
    standing = {each: await standing_of(registry, each, hours) for each in asked}
    some = None if only is None and question.device is None else asked
    return await events_found(client, env, question, some) | {"hours": standing}


async def events_found(
    client: Client, env: str, question: Events, devices: Collection[str] | None
) -> dict[str, Any]:
    """Return the events of some devices, or of all where None is given. Raises: HubError."""
    found = await find_events(
        client,
        env,
        EventLog(question.since_ns, question.limit),
        devices=devices,
        kind=question.kind,
        since_ns=question.since_ns,
    )
    return found._asdict() | {"events": [event.to_json() for event in found.events]}


async def standing_of(registry: Registry, device: str, hours: range) -> dict[str, Any]:
    """Return how hours (ns, UTC) of a device stand: in which of them events may be missing. Raises: RegistryError."""
    return _standing_json(await hour_reports_of(registry, device, hours))


def _standing_json(reports: list[HourReport]) -> dict[str, Any]:
    # Of an hour that was imported no vehicle has said what happened in it, and of one that was erased nobody may.
    reports = [each for each in reports if each.state not in ("imported", "erased")]
    counted = Counter(map(hiding, reports))
    states = {state: counted[state] for state in ("complete", "explained", "waiting")}
    doubtful = [hour(each.hour_ns) for each in reports if hiding(each) != "complete"]
    return states | {"not_complete": doubtful}
