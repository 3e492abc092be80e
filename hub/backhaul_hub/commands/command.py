"""`backhaul-hub command VID NAME`."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click
from nats.errors import Error as NatsError

from backhaul_hub.command_book import State, command_subject, result_subject
from backhaul_hub.command_service import SERVICE
from backhaul_hub.config import load
from backhaul_hub.errors import HubError
from backhaul_hub.jetstream import JetStreamApi

from ._ask import ask_over, hub_client
from ._options import directory_option, who_option

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

_LOOK_S = 1.0
_RECORD_S_MAX = 10.0


@click.command("command")
@click.argument("device", metavar="VID")
@click.argument("name", metavar="NAME")
@directory_option
@click.option("--params", default="null", metavar="JSON", help="What the handler is given.")
@click.option(
    "--deadline",
    "deadline_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds from now after which the vehicle does not start it any more.",
)
@click.option("--id", "id_", metavar="ID", help="Its id; sent again under one id it is the same.")
@who_option
@click.option("--wait", is_flag=True, help="Wait for the end; exit status 1 unless it is done.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    device: str,
    name: str,
    directory: Path,
    params: str,
    deadline_s: float | None,
    id_: str | None,
    who: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Send command NAME to device VID, which carries it out once, or not at all after its deadline."""
    body: dict[str, Any] = {"id": id_ or secrets.token_hex(8), "params": _json(params), "who": who}
    if deadline_s is not None:
        body["deadline_s"] = deadline_s
    found = asyncio.run(_command(directory, device, name, body, wait=wait))
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        click.echo(f"{found['id']} {found['state']}")
        if "result" in found:
            click.echo(json.dumps(found["result"], ensure_ascii=False))
        if "error" in found:
            click.echo(found["error"], err=True)
    # A refusal is known at once; the rest is only asked about with --wait.
    if found["state"] != State.DONE and (wait or found["state"] == State.FAILED):
        sys.exit(1)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--params") from error


async def _command(
    directory: Path, device: str, name: str, body: dict[str, Any], *, wait: bool
) -> dict[str, Any]:
    env = load(directory).twin.env
    async with hub_client(directory) as client:
        news = asyncio.Event()

        async def on_news(_: object) -> None:
            news.set()

        try:
            await client.subscribe(result_subject(env, device, body["id"]), cb=on_news)
            subject = command_subject(env, device, name)
            await JetStreamApi(client).publish(subject, json.dumps(body).encode())
        except (NatsError, AssertionError) as error:
            raise HubError(f"{device} {name}: {error!r}") from error
        return await _follow(client, directory, device, body["id"], news, wait=wait)


async def _follow(
    client: Client, directory: Path, device: str, id_: str, news: asyncio.Event, *, wait: bool
) -> dict[str, Any]:
    """Return the command as recorded, or as it ended."""
    looked_s = 0.0
    while True:
        answer = await ask_over(client, directory, SERVICE, {"device": device, "id": id_})
        for found in answer["commands"]:
            if not wait or State(found["state"]).over:
                return dict(found)
        if not answer["commands"] and looked_s > _RECORD_S_MAX:
            raise HubError(
                f"command {id_} is in the queue, and the control plane has not taken it",
                hint="see its log; after five minutes in the queue a command is gone",
            )
        try:
            async with asyncio.timeout(_LOOK_S):
                await news.wait()
        except TimeoutError:
            looked_s += _LOOK_S
        news.clear()
