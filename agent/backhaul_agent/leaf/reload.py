"""Has the leaf server read its configuration again, or drop its link and dial, over its own system account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_agent.errors import LeafReloadError
from backhaul_runtime.patched_client import PatchedClient

ANSWER_S_MAX = 10.0  # the server tries for a second where the last connection is not gone yet


async def reload_leaf(url: str, login: dict[str, Any], *, times: int = 1) -> None:
    """Log in to the system account and have the server read its configuration.

    Raises:
        LeafReloadError: nobody is there, the login is none, or the configuration is refused.
    """
    try:
        async with _connected(url, login) as client:
            server = await _ask(client, "$SYS.REQ.SERVER.PING.IDZ")
            for _ in range(times):
                answer = await _ask(client, f"$SYS.REQ.SERVER.{server['id']}.RELOAD")
                if refused := answer.get("error"):
                    raise LeafReloadError(
                        f"refused its configuration: {refused.get('description')}", refused=True
                    )
    except (NatsError, OSError, TimeoutError, msgspec.DecodeError, KeyError) as error:
        raise LeafReloadError(
            f"cannot be told to read its configuration: {error!r}", refused=False
        ) from error


async def drop_link(url: str, login: dict[str, Any]) -> int:
    """Log in to the system account and have the server drop its links, upon which it dials; return how many it had.

    Raises:
        LeafReloadError: nobody is there, or the login is none, or may not do that.
    """
    try:
        async with _connected(url, login) as client:
            server = await _ask(client, "$SYS.REQ.SERVER.PING.IDZ")
            api = f"$SYS.REQ.SERVER.{server['id']}"
            links = (await _ask(client, f"{api}.LEAFZ"))["data"].get("leafs") or []
            for link in links:
                await _ask(client, f"{api}.KICK", {"cid": link["id"]})
            return len(links)
    except (NatsError, OSError, TimeoutError, msgspec.DecodeError, KeyError) as error:
        raise LeafReloadError(f"cannot be told to dial anew: {error!r}", refused=False) from error


async def lets_in(url: str, login: dict[str, Any]) -> bool:
    """Tell whether the server takes a login. Raises: LeafReloadError, where it cannot be asked."""
    try:
        async with _connected(url, login):
            return True
    except (NatsError, OSError, TimeoutError) as error:
        if "authorization" in str(error).lower():
            return False
        raise LeafReloadError(f"cannot be asked: {error!r}", refused=False) from error


@asynccontextmanager
async def _connected(url: str, login: dict[str, Any]) -> AsyncIterator[Client]:
    client, before = PatchedClient(), asyncio.all_tasks()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            await client.connect(
                servers=[url],
                **login,
                name="backhaul-agent reload",
                connect_timeout=int(ANSWER_S_MAX),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                error_cb=_quiet,
            )
            yield client
    finally:
        await client.close()
        # nats-py closes a refused connection in a task of its own, which the loop's end would cut short.
        if closing := asyncio.all_tasks() - before:
            await asyncio.wait(closing, timeout=1.0)


async def _ask(client: Client, subject: str, words: dict[str, Any] | None = None) -> dict[str, Any]:
    question = msgspec.json.encode(words) if words else b""
    message = await client.request(subject, question, timeout=ANSWER_S_MAX)
    found: dict[str, Any] = msgspec.json.decode(message.data, type=dict[str, Any])
    return found


async def _quiet(_: Exception) -> None:
    """Take note of nothing: an error is raised where it was tried."""
