"""`backhaul-hub hand-over`: Have another machine lead the hub, in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from backhaul_hub.cli._ask import Operator, ask
from backhaul_hub.cli._options import directory_option
from backhaul_hub.errors import HubError

_LOOK_S = 0.25
_WAIT_S = 60.0


@click.command(name="hand-over")
@directory_option
@click.option("--to", metavar="MACHINE", default="", help="Which machine; else any that is ready.")
def hand_over(directory: Path, to: str) -> None:
    """Have another machine of [standby] lead the hub: this one stops in order, and follows.

    It ends when the other one answers. To restart the machine that leads, hand over first.
    """
    operator = Operator(directory)
    said = ask(operator, "hand-over", {"to": to})
    now = asyncio.run(_leads(operator, said["from"]))
    click.echo(f"{now} leads, and {said['from']} follows")


async def _leads(operator: Operator, before: str) -> str:
    """Return the machine that leads, once it is another one than before. Raises: HubError: none in a minute."""
    end_s = asyncio.get_running_loop().time() + _WAIT_S
    async with operator.client() as client:
        while asyncio.get_running_loop().time() < end_s:
            with suppress(HubError):  # between two that lead nobody answers
                answer: dict[str, Any] = await operator.ask(client, "status", {}, reads=True)
                found = answer.get("standby", {}).get("leads", before)
                if found != before:
                    return str(found)
            await asyncio.sleep(_LOOK_S)
    raise HubError("no other machine leads yet", hint="see: backhaul-hub status")
