"""`backhaul-hub events [VID]`: Show the events that programs on vehicles reported."""

from __future__ import annotations

import json
from typing import Any

import click

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.state.point_text import shown, utc
from backhaul_hub.cli._act import answer_pages
from backhaul_hub.cli._ask import Operator, Visitor
from backhaul_hub.cli._options import access_option, awaited, json_option, time_ns
from backhaul_hub.cli._printing import print_json
from backhaul_hub.config import load
from backhaul_hub.questions import Events
from backhaul_hub.twin.event_answers import events_found
from backhaul_hub.twin.event_log import SAID
from backhaul_runtime.clock import SystemClock

_QUIET = "had not spoken yet in any of these hours"


@click.command()
@click.argument("device", metavar="[VID]", required=False)
@access_option
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
@json_option
@awaited
async def events(
    access: Operator | Visitor,
    device: str | None,
    kind: str | None,
    since_ns: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show events that programs on vehicles reported, each once, by its time; of VID or of all.

    Ends with how the hours stand: in one that is not complete, events may be missing still.
    """
    now_ns = SystemClock().now_ns()
    since_ns = now_ns - 24 * HOUR_NS if since_ns is None else since_ns
    question = {"device": device, "kind": kind, "since_ns": since_ns, "limit": limit}
    said = await _ask(access, question, now_ns)
    if as_json:
        print_json(said)
        return
    for event in said["events"]:
        click.echo(_line(event))
    for line in _footer(said):
        click.echo(f"# {line}")


async def _ask(access: Operator | Visitor, question: dict[str, Any], now_ns: int) -> dict[str, Any]:
    async with access.client() as client:
        if isinstance(access, Visitor):
            return await access.ask(client, "events", question, reads=True)
        hours = {"from_ns": question["since_ns"], "to_ns": now_ns, "device": question["device"]}
        # First the hours, then the events: of an hour that is complete by now, all are found.
        standing = dict[str, Any]()
        async for page in answer_pages(access.directory, "event-hours", hours, client):
            standing |= page["hours"]
        env = load(access.directory).twin.env
        devices = None if question["device"] is None else [question["device"]]
        found = await events_found(client, env, Events(**question), devices)
        return found | {"hours": standing}


def _line(event: dict[str, Any]) -> str:
    said = [f"{name}={_plain(event[name])}" for name in SAID if name in event]
    return "  ".join([utc(event["time"]), event["vid"], _plain(event["kind"]), *said])


def _plain(value: object) -> str:
    """Return a vehicle's word without anything that a terminal would obey."""
    return shown(value) if isinstance(value, str) and value else json.dumps(value)


def _footer(said: dict[str, Any]) -> list[str]:
    lines = []
    if said["earlier"]:
        lines.append(f"{said['earlier']} earlier ones are not shown: --limit, --since, --json")
    if said["behind"]:
        lines.append(f"{said['behind']} messages of UP are not in TWIN_EVENTS yet: ask again")
    if said["unheard"]:
        lines.append(f"TWIN_EVENTS does not hear {', '.join(said['unheard'])} just now: ask again")
    if said["unreadable"]:
        lines.append(f"{said['unreadable']} messages are no events")
    return lines + [_standing(device, hours) for device, hours in said["hours"].items()]


def _standing(device: str, hours: dict[str, Any]) -> str:
    """Say whether events of a device may be missing."""
    doubtful = hours["not_complete"]
    count = hours["complete"] + len(doubtful)
    if not count:
        return f"{device} {_QUIET}"
    if not doubtful:
        return f"{device}: every hour is complete, so there are no others"
    states = ", ".join(
        f"{hours[state]} {state}" for state in ("explained", "waiting") if hours[state]
    )
    return (
        f"{device}: of {count} hours {states}, from {doubtful[0]}"
        f" on: events of those may be missing (backhaul-hub completeness {device})"
    )
