"""Ask the agent that runs on this vehicle, and print its answer for a program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from backhaul_agent.client.client import Agent, connect

T = TypeVar("T")


def ask(login: dict[str, Any], question: Callable[[Agent], Awaitable[T]]) -> T:
    """Return the answer to a question, asked on a connection that is closed after it.

    Args:
        login: of `options.server_options`.
        question: asks, with what is connected.
    """

    async def asked() -> T:
        async with connect(**login) as agent:
            return await question(agent)

    return asyncio.run(asked())


def print_json(value: Any) -> None:
    """Print an answer for a program."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
