"""`backhaul-hub events [VID]`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import click

from backhaul_codec.certificate_text import hour
from backhaul_codec.certificates import HOUR_NS, hours_between
from backhaul_codec.point_text import utc
from backhaul_hub.certify import certificates_of
from backhaul_hub.clock import SystemClock
from backhaul_hub.config import load
from backhaul_hub.errors import RegistryError
from backhaul_hub.event_log import SAID, EventLog, find_events, hiding
from backhaul_hub.registry import Registry

from ._ask import hub_client
from ._options import directory_option, time_ns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from backhaul_codec.certificates import Certificate
    from backhaul_hub.event_log import Found, VehicleEvent

_HOURS_MAX = 24 * 366
_QUIET = "had not spoken yet in any of these hours"


class _Answer(NamedTuple):
    found: Found
    hours: dict[str, list[Certificate]]
    """By device."""


@click.command()
@click.argument("device", metavar="[VID]", required=False)
@directory_option
@click.option("--kind", help="Events of this kind alone: armed, failsafe ...")
@click.option(
    "--since",
    "since_ns",
    callback=time_ns,
    metavar="TIME",
    help="What happened from then on; UTC. Default: 24 hours ago.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="The newest so many.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def events(
    directory: Path,
    device: str | None,
    kind: str | None,
    since_ns: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show what programs on vehicles reported, each event once, by its time; of VID or of all.

    Ends with how the hours stand: in one that is not complete, events may be missing still.
    """
    now_ns = SystemClock().now_ns()
    since_ns = now_ns - 24 * HOUR_NS if since_ns is None else since_ns
    hours = hours_between(since_ns // HOUR_NS * HOUR_NS, now_ns)
    if len(hours) > _HOURS_MAX:
        raise click.UsageError(f"--since is {len(hours)} hours ago: {_HOURS_MAX} at most")
    found, certified = asyncio.run(_ask(directory, device, kind, since_ns, limit, hours))
    if as_json:
        said = found._asdict() | {
            "events": [event.to_json() for event in found.events],
            "hours": {each: _standing_json(some) for each, some in certified.items()},
        }
        click.echo(json.dumps(said, indent=2, ensure_ascii=False))
        return
    for event in found.events:
        click.echo(_line(event))
    for line in _footer(found, certified):
        click.echo(f"# {line}")


async def _ask(
    directory: Path,
    device: str | None,
    kind: str | None,
    since_ns: int,
    limit: int,
    hours: range,
) -> _Answer:
    config = load(directory)
    async with await Registry.open_existing(directory / "hub.db") as registry:
        known = sorted(await registry.devices())
        if device is not None and device not in known:
            raise RegistryError(
                f"there is no device {device}", hint="list them with: backhaul-hub devices"
            )
        # First the hours, then the events: of an hour that is complete by now, all are found.
        asked = known if device is None else [device]
        certified = {each: await certificates_of(registry, each, hours) for each in asked}
    async with hub_client(directory) as client:
        log = EventLog(since_ns, limit)
        found = await find_events(
            client, config.twin.env, log, device=device, kind=kind, since_ns=since_ns
        )
    return _Answer(found, certified)


def _line(event: VehicleEvent) -> str:
    said = [f"{name}={_plain(event.said[name])}" for name in SAID if name in event.said]
    return "  ".join([utc(event.time), event.device, _plain(event.kind), *said])


def _plain(value: object) -> str:
    """Return a vehicle's word without anything that a terminal would obey."""
    if isinstance(value, str) and value.isprintable() and value:
        return value
    return json.dumps(value)


def _standing_json(certificates: list[Certificate]) -> dict[str, object]:
    counted = Counter(map(hiding, certificates))
    states = {state: counted[state] for state in ("complete", "explained", "waiting")}
    return states | {"not_complete": [hour(each.hour_ns) for each in _not_complete(certificates)]}


def _not_complete(certificates: Iterable[Certificate]) -> list[Certificate]:
    return [each for each in certificates if hiding(each) != "complete"]


def _footer(found: Found, certified: dict[str, list[Certificate]]) -> list[str]:
    lines = []
    if found.earlier:
        lines.append(f"{found.earlier} earlier ones are not shown: --limit, --since, --json")
    if found.behind:
        lines.append(f"{found.behind} messages of UP are not in TWIN_EVENTS yet: ask again")
    if found.unheard:
        lines.append(f"TWIN_EVENTS does not hear {', '.join(found.unheard)} just now: ask again")
    if found.unreadable:
        lines.append(f"{found.unreadable} messages are no events")
    for device, certificates in certified.items():
        if not certificates:
            lines.append(f"{device} {_QUIET}")
        elif not (doubtful := _not_complete(certificates)):
            lines.append(f"{device}: every hour is complete, so there are no others")
        else:
            counted = Counter(map(hiding, doubtful))
            states = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
            lines.append(
                f"{device}: of {len(certificates)} hours {states}, from {hour(doubtful[0].hour_ns)}"
                f" on: events of those may be missing (backhaul-hub completeness {device})"
            )
    return lines
