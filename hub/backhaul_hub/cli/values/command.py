"""`backhaul-hub command VID NAME`: Send a command to a device: carried out once, or not at all."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from typing import Any

import click
import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.state.point_text import shown
from backhaul_codec.strict.json import JsonError, read_json
from backhaul_hub.broadcast import events as live
from backhaul_hub.cli._ask import Access, Operator, Visitor
from backhaul_hub.cli._options import access_option, awaited, json_option, who_option
from backhaul_hub.cli._printing import print_json
from backhaul_hub.commands.command import command_subject, result_subject
from backhaul_hub.commands.delivery import read_body
from backhaul_hub.commands.outcome import State
from backhaul_hub.config import load
from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.questions import CommandName

_LOOK_S = 1.0
_RECORD_S_MAX = 10.0
_ACKNOWLEDGED_S, _TRIES = 2.0, 5


@click.command("command")
@click.argument("device", metavar="VID")
@click.argument("name", metavar="NAME")
@access_option
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
@json_option
@awaited
async def command(
    device: str,
    name: str,
    access: Operator | Visitor,
    params: str,
    deadline_s: float | None,
    id_: str | None,
    who: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Send command NAME to device VID, which carries it out once, or not at all after its deadline."""
    body: dict[str, Any] = {"id": id_ or secrets.token_hex(8), "params": _json(params)}
    if who:
        body["who"] = who
    if deadline_s is not None:
        body["deadline_s"] = deadline_s
    # What the control plane would refuse is refused here, at once: it is recorded under an id that nobody asks for.
    try:
        msgspec.convert(name, CommandName)
        read_body(json.dumps(body).encode())
    except (ValueError, msgspec.ValidationError) as error:
        raise click.UsageError(str(error)) from error
    found = await _command(access, device, name, body, wait=wait)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['id']} {found['state']}")
        if "result" in found:
            click.echo(json.dumps(found["result"], ensure_ascii=False))
        if "error" in found:
            click.echo(shown(found["error"]), err=True)
    # A refusal is known at once; the rest is only asked about with --wait.
    if found["state"] != State.DONE and (wait or found["state"] == State.FAILED):
        sys.exit(1)


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except JsonError as error:
        raise click.BadParameter(error.reason, param_hint="--params") from error


async def _command(
    access: Operator | Visitor, device: str, name: str, body: dict[str, Any], *, wait: bool
) -> dict[str, Any]:
    async with access.client() as client:
        news = asyncio.Event()

        async def on_news(_: object) -> None:
            news.set()

        try:
            await client.subscribe(_news_subject(access, device, body["id"]), cb=on_news)
            if isinstance(access, Visitor):
                await access.ask(client, "command", body | {"device": device, "name": name})
            else:
                subject = command_subject(load(access.directory).twin.env, device, name)
                await _publish(client, subject, json.dumps(body).encode())
        except (NatsError, AssertionError) as error:
            raise HubError(f"{device} {name}: {error!r}") from error
        return await _follow(client, access, device, body["id"], news, wait=wait)


async def _publish(client: Client, subject: str, body: bytes) -> None:
    """Publish until it is acknowledged: under its id it is the same command each time.

    Raises:
        HubError: the queue refused it, or nobody acknowledges.
    """
    queue = JetStreamApi(client, timeout_s=_ACKNOWLEDGED_S)
    for _ in range(_TRIES - 1):
        try:
            await queue.publish(subject, body)
        except JetStreamError:
            raise
        except HubError:
            continue  # through a cluster the answer may get lost, see _ask
        return
    await queue.publish(subject, body)


def _news_subject(access: Operator | Visitor, device: str, id_: str) -> str:
    """Return the subject on which a command's sender hears of it."""
    if isinstance(access, Visitor):
        return access.person.live.replace(">", f"{device}.{live.COMMAND}.{id_}")
    return result_subject(load(access.directory).twin.env, device, id_)


async def _follow(
    client: Client, access: Access, device: str, id_: str, news: asyncio.Event, *, wait: bool
) -> dict[str, Any]:
    """Return the command as recorded, or as it ended."""
    looked_s = 0.0
    while True:
        question = {"device": device, "id": id_}
        answer = await access.ask(client, "commands", question, reads=True)
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
