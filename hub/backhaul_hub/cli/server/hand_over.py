"""`backhaul-hub hand-over`: Have another machine lead the hub, in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from backhaul_hub.cli._ask import Operator
from backhaul_hub.cli._options import awaited, directory_option
from backhaul_hub.errors import HubError

_LOOK_S = 0.25
_WAIT_S = 60.0


@click.command(name="hand-over")
@directory_option
@click.option("--to", metavar="MACHINE", default="", help="Which machine; else any that is ready.")
@awaited
async def hand_over(directory: Path, to: str) -> None:
    """Have another machine of [standby] lead the hub: this one stops in order, and follows.

    It ends when the other one answers. To restart the machine that leads, hand over first.
    """
    operator = Operator(directory)
    async with operator.client() as client:
        before = (await operator.ask(client, "hand-over", {"to": to}))["from"]
        end_s = asyncio.get_running_loop().time() + _WAIT_S
        while asyncio.get_running_loop().time() < end_s:
            with suppress(HubError):  # between two that lead nobody answers
                answer = await operator.ask(client, "status", {}, reads=True)
                now = answer.get("standby", {}).get("leads", before)
                if now != before:
                    click.echo(f"{now} leads, and {before} follows")
                    return
            await asyncio.sleep(_LOOK_S)
    raise HubError("no other machine leads yet", hint="see: backhaul-hub status")
