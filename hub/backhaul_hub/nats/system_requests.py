"""Asking every server of the hub over its system account, and having all read their configuration."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError

_WAIT_S = 3.0
# Where none answers, each may have stood still, or the connection was lost with the question.
_TRIES = 3
_REQUEST_S = 10.0


async def ask_all(
    system: Client,
    verb: str,
    servers: int,
    options: dict[str, Any] | None = None,
    *,
    last_s: float | None = None,
) -> list[dict[str, Any]]:
    """Ask all servers one question; return the answers that come within three seconds.

    Where none does, it is asked again.

    Args:
        system: a connection in the system account, to any of them.
        verb: the question, as in $SYS.REQ.SERVER.PING.<verb>.
        servers: how many there are; after so many answers nobody waits for more.
        options: of the question.
        last_s: for the last server's answer once all others have answered, other than the three seconds.

    Raises:
        HubError: none answered.
        NatsError: the connection is closed.
    """
    body = json.dumps(options or {}).encode()
    subject = f"$SYS.REQ.SERVER.PING.{verb}"
    answers = await ask_each(system, subject, body, servers, last_s=last_s)
    return [json.loads(answer) for answer in answers]


async def ask_each(
    system: Client,
    subject: str,
    body: bytes,
    servers: int,
    *,
    wait_s: float | None = None,
    last_s: float | None = None,
) -> list[bytes]:
    """Ask something that every server answers; return the answers as `ask_all` does.

    Asked again where none answers: what is asked may be asked twice. `wait_s`: for all answers, other than usual.

    Raises:
        HubError: none answered.
        NatsError: the connection is closed.
    """
    for _ in range(_TRIES):
        if answers := await _answers(system, subject, body, servers, wait_s or _WAIT_S, last_s):
            return answers
    raise HubError(f"no server answers to {subject} in {_TRIES * (wait_s or _WAIT_S):g} s")


async def _answers(
    system: Client,
    subject: str,
    body: bytes,
    servers: int,
    wait_s: float,
    last_s: float | None,
) -> list[bytes]:
    inbox = system.new_inbox()
    subscription = await system.subscribe(inbox)
    answers: list[bytes] = []
    try:
        await system.publish(subject, body, reply=inbox)
        async with asyncio.timeout(wait_s) as limit:
            while len(answers) < servers:
                answers.append((await subscription.next_msg(timeout=None)).data)
                if last_s is not None and len(answers) == servers - 1:
                    limit.reschedule(asyncio.get_running_loop().time() + last_s)
    except TimeoutError:
        pass
    finally:
        if not system.is_closed:
            await subscription.unsubscribe()
    return answers


async def ask_server(
    system: Client, server: str, verb: str, body: dict[str, Any]
) -> dict[str, Any]:
    """Ask one server, by its id. Raises: HubError: it did not answer, or refused."""
    try:
        message = await system.request(
            f"$SYS.REQ.SERVER.{server}.{verb}", json.dumps(body).encode(), timeout=_REQUEST_S
        )
    except NatsError as error:
        raise HubError(f"no answer from the server to {verb}: {error!r}") from error
    answer: dict[str, Any] = json.loads(message.data)
    if refused := answer.get("error"):
        raise HubError(f"the server refused {verb}: {refused.get('description')}")
    return answer


async def reload_servers(system: Client, servers: int) -> list[str]:
    """Let every server read its configuration again; no link is cut by that. Return their names.

    Raises:
        HubError: one refused, or does not answer; those that do have read it all the same.
    """
    names, refused = [], []
    for server in await ask_all(system, "IDZ", servers):
        try:
            await ask_server(system, server["id"], "RELOAD", {})
        except HubError as error:
            refused.append(f"{server['name']}: {error.message}")
        else:
            names.append(server["name"])
    if refused:
        raise HubError("; ".join(refused))
    if len(names) < servers:
        raise HubError(f"{len(names)} of {servers} servers answer: {', '.join(sorted(names))}")
    return sorted(names)
