"""The parts of an agent that runs in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.agent_streams import points_of

if TYPE_CHECKING:
    from nats.aio.client import Client

    from backhaul_codec import Point


async def events_of(client: Client) -> list[Point]:
    return [point for point in await points_of(client, "OUT_live") if not point.node]
