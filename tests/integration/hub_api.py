"""The hub server's JetStream API for tests."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from backhaul_agent.client import connect
from backhaul_codec import peek
from backhaul_codec.kinds import FRAME
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.shards import api_subject
from tests.integration.readings import keep

from .conftest import DEADLINE_S, lane

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

    from .conftest import World


async def api(world: World, verb: str, body: object = None) -> None:
    client = await world.hub_client()
    answer = await client.request(api_subject(verb), json.dumps(body or {}).encode(), timeout=30)
    assert "error" not in json.loads(answer.data), answer.data


FRAMES = 20


async def kept(world: World, rig: DeviceRig, first: int = 1) -> None:
    """Have frames `first` to `FRAMES` kept, and wait until the hub has proved all of them."""
    async with connect(rig.url) as agent:
        await keep(agent, 250 * (first - 1) + 1, 250 * (FRAMES - first + 1))
    await world.until(lambda report: lane(report).get("watermark", 0) == FRAMES)


async def in_up(world: World) -> list[int]:
    """Return the seqs of bulk that UP holds, repeats included, sorted."""
    client = await world.hub_client()
    found = await StoredReader(client, "UP_00", timeout_s=DEADLINE_S).read(1, 10_000)
    return sorted(
        peek(each.body).seq for each in found if parse_uplink(each.subject).letter == FRAME.letter
    )


async def whole_again(world: World) -> None:
    """Wait until nothing is missing by the hub's account, and UP agrees."""
    async with asyncio.timeout(120):
        while True:
            report = await world.until(
                lambda report: (
                    lane(report).get("watermark") == FRAMES and lane(report).get("lost") == 0
                )
            )
            if set(await in_up(world)) == set(range(1, FRAMES + 1)):
                assert lane(report)["gaps"] == []
                return
            await asyncio.sleep(0.1)  # the hub has not noticed yet
