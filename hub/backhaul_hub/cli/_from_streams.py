"""`backhaul-hub restore --from-streams`: hub.db from traces."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from pathlib import Path

import click

from backhaul_codec.device_token import new_device_token
from backhaul_codec.state.point_text import columns
from backhaul_hub.access.keys import HubKeys, read_keys
from backhaul_hub.backup.carry_revocations import at_servers
from backhaul_hub.backup.rebuild import LOST, LOST_PEOPLE, Rebuilt, rebuild
from backhaul_hub.backup.restore import require_stopped
from backhaul_hub.backup.traces import Traces, traces
from backhaul_hub.cli._act import told
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.config import load
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.db.lock import ENDS_S_MAX, alone_with
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.nats.connection import connected
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.servers import urls
from backhaul_runtime.clock import SystemClock

_NEXT = {
    "key unknown": "its key is taken from its next login",
    "not enrolled": "its messages are kept; it is taken in at its next login, or: backhaul-hub enrol",
    "revoked": "stays out",
}


async def rebuild_registry(directory: Path) -> tuple[Rebuilt, str]:
    """Have hub.db know the traces of servers and files; return them, and why servers were not told.

    Raises:
        HubError: the control plane runs, a server does not answer, or hub.db is not usable.
    """
    config, keys, clock = load(directory), read_keys(directory), SystemClock()
    async with connected(config.nats.url, config.nats.system) as system:
        await SingleInstance(system, clock.now_ns(), system.new_inbox()).require_alone()
        there = await at_servers(system, keys, len(urls(config.nats.url)))
    found = await _traces(directory, keys)
    found.shut_out = there.revoked
    who = "backhaul-hub restore --from-streams"
    async with (
        alone_with(directory, who, wait_s=ENDS_S_MAX),
        await Registry.open(directory / "hub.db") as registry,
    ):
        rebuilt = await rebuild(
            registry,
            found,
            there.generations,
            clock.now_ns(),
            lambda: new_device_token(secrets.choice),
        )
        return rebuilt, await told(directory, config, keys, registry)


async def _traces(directory: Path, keys: HubKeys) -> Traces:
    """Return the traces in streams and files; of files alone, where the server has lost its accounts, too."""
    try:
        async with hub_client(directory) as client:
            await require_stopped(client)
            return await traces(directory, keys, JetStreamApi(client))
    except BackupError:
        raise
    except HubError as error:
        # They are pushed in the end, and let the next one in.
        found = await traces(directory, keys, None)
        found.unreadable.append(f"the streams: {error.message}. Run this again")
        return found


def print_rebuilt(directory: Path, rebuilt: Rebuilt, not_told: str) -> None:
    """Print the restored and the missing parts."""
    head = ("DEVICE", "STATE", "MESSAGES IN UP", "NODES", "KNOWN FROM", "")
    rows = [
        (
            each.device,
            each.state,
            f"{each.messages:,}",
            ", ".join(each.nodes) or "-",
            ", ".join(each.places),
            _NEXT.get(each.state, ""),
        )
        for each in rebuilt.devices
    ]
    click.echo("\n".join(columns([head, *rows])))
    if not rows:
        click.echo("no device has left a trace")
    click.echo(f"{rebuilt.revoked} keys are revoked that hub.db did not know; they stay so.")
    if rebuilt.people:
        click.echo(f"Users whose credentials are in people/: {', '.join(rebuilt.people)}")
    for each in rebuilt.unreadable:
        click.echo(f"not read: {each}", err=True)
    click.echo("What UP holds is read again when the control plane starts. Not brought back:")
    for words in (*LOST, LOST_PEOPLE):
        click.echo(f"  {words}")
    if not_told:
        click.echo(f"Not every server was told, the control plane will: {not_told}", err=True)
    click.echo(f"Now start: backhaul-hub up --dir {directory}")


def rebuilt_as_json(rebuilt: Rebuilt, not_told: str) -> str:
    """Return the same for programs."""
    said = rebuilt._asdict() | {"devices": [asdict(each) for each in rebuilt.devices]}
    return json.dumps(said | {"lost": [*LOST, LOST_PEOPLE], "told": not not_told})
