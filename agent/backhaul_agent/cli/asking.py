"""Ask the agent that runs on this vehicle, and print its answer for a program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from backhaul_agent.client.client import Agent, connect
from backhaul_codec.state import point_text

T = TypeVar("T")


def ask(login: dict[str, Any], question: Callable[[Agent], Awaitable[T]]) -> T:
    """Return the answer to a question, asked with a login of `options.server_options`; then the connection is closed."""

    async def asked() -> T:
        async with connect(**login) as agent:
            return await question(agent)

    return asyncio.run(asked())


def print_points(points: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print points as an answer has them: for a program, or as a table."""
    if as_json:
        print_json({"points": points})
    else:
        click.echo("\n".join(point_text.table(points)))


def print_json(value: Any) -> None:
    """Print an answer for a program."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
