"""History for programs on the vehicle, from the agent's ledger.

async with connect("nats://127.0.0.1:4222") as agent:
async for piece in history(agent, "battery", "soc", from_ns=start, to_ns=end):
print(piece["dtype"], list(zip(piece["times"], piece["values"])))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError

from backhaul_agent.client.client import Agent
from backhaul_agent.errors import NoAgentError, NotKnownError, RefusedError
from backhaul_agent.history.merge import POINTS_MAX, TIME_MAX, TIME_MIN
from backhaul_agent.history.service import HISTORY_SUBJECT
from backhaul_codec.subjects import encode_token

SILENCE_S_MAX = 65.0  # the agent gives up on an answer itself after 60 s
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def history(
    agent: Agent,
    node: str,
    type: str,
    key: str = "",
    *,
    from_ns: int = TIME_MIN,
    to_ns: int = TIME_MAX,
    limit: int | None = None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield pieces ``{"dtype", "times", "values"}``, oldest first, ``from_ns <= time < to_ns``.

    Asks again until all is there, or ``limit`` points are (a few more where many have one stamp).

    Raises:
        RefusedError: with a code and a sentence. NotKnownError: no answer came. NoAgentError.
    """
    left = limit
    while left is None or left > 0:
        request = {
            "node": node, "type": type, "key": key, "from": from_ns, "to": to_ns,
            "limit": min(left or POINTS_MAX, POINTS_MAX),
        }  # fmt: skip
        found = None
        async with aclosing(_ask(agent, request)) as pieces:
            async for piece in pieces:
                if piece.get("end"):
                    found = piece["points"], piece["next"]
                else:
                    yield piece
        if found is None or found[1] is None:
            return
        from_ns = found[1]
        left = None if left is None else left - found[0]


async def _ask(agent: Agent, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """Send one request; yield its pieces, and the end."""
    subject = f"{HISTORY_SUBJECT}.{encode_token(request['node'])}"
    inbox = agent.nats.new_inbox()
    pieces: asyncio.Queue[Msg] = asyncio.Queue()

    async def on_piece(message: Msg) -> None:
        await pieces.put(message)

    subscription = await agent.nats.subscribe(inbox, cb=on_piece)
    try:
        await agent.nats.publish(subject, msgspec.json.encode(request), reply=inbox)
        while True:
            try:
                async with asyncio.timeout(SILENCE_S_MAX):
                    message = await pieces.get()
            except (TimeoutError, ConnectionClosedError) as error:
                raise NotKnownError(subject, SILENCE_S_MAX) from error
            if not message.data:
                raise NoAgentError(subject)
            piece = _decode(message.data)
            if refused := piece.get("error"):
                raise RefusedError(refused["code"], refused["message"])
            yield piece
            if piece.get("end"):
                return
    finally:
        if not agent.nats.is_closed:
            await subscription.unsubscribe()
