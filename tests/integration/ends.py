"""Both ends of a vehicle's configuration."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_codec import Point, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from backhaul_agent.client.config import ConfigClient
    from tests.integration.conftest import World
    from tests.support.rig.parts import DeviceRig


Heads = dict[tuple[str, str, str, str], tuple[Any, int, str, int]]


class Ends:
    """A hub and a vehicle, asked for their heads alike."""

    def __init__(self, world: World, rig: DeviceRig, hub: Client, vehicle: ConfigClient) -> None:
        self.world = world
        self.rig = rig
        self.client = hub
        self.vehicle = vehicle

    async def hub(self, service: str, **question: Any) -> dict[str, Any]:
        data = json.dumps({"device": "VID-001", **question}).encode()
        answer: dict[str, Any] = json.loads(
            (await self.client.request(f"hub.{service}", data, timeout=30)).data
        )
        assert "error" not in answer, answer
        return answer

    async def set_at_hub(self, node: str, **values: Any) -> None:
        points = [{"type": type_, "value": value} for type_, value in values.items()]
        await self.hub("set", node=node, points=points, who="ann")

    async def heads(self) -> tuple[Heads, Heads]:
        hub = (await self.hub("get", deleted=True))["points"]
        return heads_of(hub), heads_of(await self.vehicle.get(deleted=True))

    async def past_all_writes(self) -> None:
        """Return when both ends' clocks, which differ a little, are past all that was written."""
        newest_ns = max(time_ns for end in await self.heads() for _, time_ns, *_ in end.values())
        clocks_ns: list[int] = []
        async with (
            until(lambda: f"{clocks_ns} are not past {newest_ns}"),
            connect(self.rig.url) as agent,
        ):
            while not clocks_ns or min(clocks_ns) <= newest_ns:
                clocks_ns = [time.time_ns(), (await agent.status())["clock"]["time_ns"]]

    async def agree(self, wanted: Callable[[Heads], bool] = bool) -> Heads:
        """Wait until both hold the same heads, and these are as wanted."""
        hub: Heads = {}
        vehicle: Heads = {}
        async with until(lambda: f"hub {hub}\nvehicle {vehicle}"):
            while True:
                hub, vehicle = await self.heads()
                if hub == vehicle and wanted(hub):
                    return hub
                await asyncio.sleep(0.05)

    async def uplink(self, kind: str) -> list[Point]:
        """Return the events of a kind in UP, in order."""
        jetstream = self.client.jetstream(prefix="upapi")
        state = (await jetstream.stream_info("UP_00")).state
        found = []
        for seq in range(state.first_seq, state.last_seq + 1):
            message = await jetstream.get_msg("UP_00", seq, direct=True)
            assert message.data is not None
            if message.subject == f"up.VID-001.e.{kind}":
                found += decode(message.data).points
        return found


def heads_of(points: list[dict[str, Any]]) -> Heads:
    return {
        (p.get("parent") or "", p["node"], p["type"], p["key"]): (
            p["value"], p["time"], p["origin"], p["tombstone"],
        )
        for p in points
    }  # fmt: skip


class until:
    """A deadline that says what was so when it passed."""

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._timeout = asyncio.timeout(120)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self._timeout.__aexit__(*exc_info)  # type: ignore[arg-type]
        except TimeoutError:
            pytest.fail(f"they never agreed: {self._state()}")
