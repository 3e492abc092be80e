"""`backhaul-hub repair-server NAME`: Have one server of a cluster copy every stream anew from the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from backhaul_hub.cli._ask import Operator
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError, HubError, NobodyAnswersError
from backhaul_hub.health.conditions import REPLICA_DAMAGED, SERVER_OFF
from backhaul_hub.nats.connection import connect
from backhaul_hub.servers import server_directory, urls
from backhaul_hub.streams.repair import Hands, ServerRepair
from backhaul_hub.streams.repair_hands import ByHand, BySystemd
from backhaul_hub.streams.repair_rules import RepairPlan
from backhaul_runtime.clock import SystemClock

_UNIT = "backhaul-hub-server.service"
_MENDED = {REPLICA_DAMAGED, SERVER_OFF}
_LOOK_S = 1.0


@click.command(name="repair-server")
@click.argument("name")
@directory_option
@click.option("--yes", is_flag=True, help="Do it. Without it only the plan is printed.")
@click.option(
    "--by-hand",
    is_flag=True,
    help="Say when to stop the server, move its store, and start it, and wait for that: it is on another machine, or no systemd unit.",
)
@click.option("--unit", default=_UNIT, show_default=True, help="The server's systemd unit here.")
def repair_server(name: str, directory: Path, yes: bool, by_hand: bool, unit: str) -> None:
    """Have server NAME copy every stream anew from the others, as after its disk was damaged.

    Its former store stays beside the new one. It refuses if another server is away, is not current, or lacks messages;
    it looks before and after the stop. It ends when NAME holds all again, and no condition says that it is damaged or off.
    """
    config = load(directory)
    servers = len(urls(config.nats.url))
    if servers == 1:
        raise ConfigError(
            "this hub has one server, which can copy nothing from others",
            hint="from a backup: backhaul-hub restore (docs/backup.md)",
        )
    store = server_directory(directory, name) / "jetstream"
    hands: Hands
    if by_hand:
        hands = ByHand(name, store, click.echo)
    else:
        hands = BySystemd(unit, name, store, SystemClock(), click.echo)
    asyncio.run(_repair(directory, name, servers, hands, yes=yes))


async def _repair(directory: Path, name: str, servers: int, hands: Hands, *, yes: bool) -> None:
    config = load(directory)
    system = await connect(config.nats.url, config.nats.system)
    try:
        repair = ServerRepair(system, name, servers, hands, click.echo)
        found = await repair.plan()
        click.echo("\n".join(_lines(found)))
        if found.against:
            raise HubError(
                f"{name} cannot be repaired now: {'; '.join(found.against)}",
                hint="the others must be whole first: backhaul-hub status",
            )
        if not yes:
            click.echo("nothing was done; to do it: --yes")
            return
        await repair.carry_out()
    finally:
        await system.close()
    await _no_more_said(Operator(directory), name)
    click.echo(f"{name} is whole; when status stays well, delete its former store")


def _lines(found: RepairPlan) -> list[str]:
    lacks = ", ".join(found.lacks) or "nothing that the counts show"
    return [
        f"{found.server} lacks {lacks}",
        f"it copies {len(found.streams)} streams anew: {', '.join(sorted(found.streams))}",
        f"steps: stop {found.server}; look at the others again; move its store aside; start it; wait until it holds all",
        "meanwhile no other server may stop: nothing could be stored then",
    ]


async def _no_more_said(operator: Operator, name: str) -> None:
    """Return once no condition says that the server is damaged or off; at once where no control plane answers. Raises: HubError."""
    try:
        async with operator.client() as client:
            while True:
                if not await _said(operator, client, name):
                    return
                await asyncio.sleep(_LOOK_S)
    except NobodyAnswersError:
        click.echo("no control plane answers, so that no condition was looked at")


async def _said(operator: Operator, client: Any, name: str) -> bool:
    answer = await operator.ask(client, "status", {}, reads=True)
    return any(each["about"] == name and each["code"] in _MENDED for each in answer["conditions"])
