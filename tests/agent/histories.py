"""Answers of agent.history as points."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from backhaul_agent.client.history import history

if TYPE_CHECKING:
    from backhaul_agent.client import Agent
    from tests.agent.bench import Bench


async def points_of(agent: Agent, series: str, **asked: Any) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    async with aclosing(history(agent, *series.split("."), **asked)) as pieces:
        async for piece in pieces:
            found += zip(piece["times"], piece["values"], strict=True)
    return found


async def asked(it: Bench, request: dict[str, Any] | bytes) -> list[bytes]:
    """Ask as a program in any language would: one publish, messages until the end."""
    inbox = it.client.new_inbox()
    answers = await it.client.subscribe(inbox)
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    await it.client.publish("agent.history", body, reply=inbox)
    found: list[bytes] = []
    while not found or b'"end":true' not in found[-1]:
        found.append((await answers.next_msg(30)).data)
    await answers.unsubscribe()
    return found
