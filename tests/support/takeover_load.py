"""A vehicle's readings and an operator's commands that never cease, while the hub's control planes take over from one another."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from backhaul_agent.client import connect
from backhaul_codec import Point
from tests.support.rig.vehicle import DEVICE
from tests.support.waiting import until

if TYPE_CHECKING:
    from nats.aio.client import Client

    from tests.support.rig.vehicle import Vehicle

BATCH = 50
ENDS = {"done"}
COMMAND_S, BATCH_S = 0.2, 0.1


class Load:
    """Commands and readings that never cease, and what became of them."""

    def __init__(self, rig: Vehicle, operator: Client) -> None:
        self._rig = rig
        self._operator = operator
        self.commands: list[str] = []
        self.kept = 0
        self.over = asyncio.Event()

    async def command(self) -> None:
        while not self.over.is_set():
            id_ = f"t-{len(self.commands)}"
            self.commands.append(id_)
            body = json.dumps({"id": id_, "deadline_s": 600.0}).encode()
            await until(partial(self._stored, body), "a stream takes the command")
            await asyncio.sleep(COMMAND_S)

    async def _stored(self, body: bytes) -> bool:
        """Publish a command; under one id that does no harm a second time."""
        subject = f"fleet.prod.veh.{DEVICE}.cmd.once"
        try:
            await self._operator.jetstream(timeout=5).publish(subject, body)
        except NatsError:
            return False
        return True

    async def keep(self) -> None:
        async with connect(self._rig.device.url) as agent:
            while not self.over.is_set():
                await agent.publish_batch("battery", _points(self.kept + 1))
                self.kept += BATCH
                await asyncio.sleep(BATCH_S)

    async def recorded(self) -> dict[str, Any]:
        answer = await self._operator.request("hub.commands", b'{"limit": 1000}', timeout=30)
        return {each["id"]: each["state"] for each in json.loads(answer.data)["commands"]}

    async def settled(self) -> bool:
        """Tell whether each command has come to its end at the hub, and the hub holds all readings."""
        try:
            states = await self.recorded()
            answer = await self._operator.request("hub.devices", b"", timeout=30)
        except NatsError:
            return False
        devices = {each["device"]: each for each in json.loads(answer.data)["devices"]}
        lane = devices[DEVICE]["lanes"]["bulk"]
        async with self._rig.device.connection() as local:
            own = (await self._rig.status(local))["lanes"]["bulk"]
        return (
            all(states.get(id_) in ENDS for id_ in self.commands)
            and lane["watermark"] >= own["last_seq"]
        )


def _points(first: int) -> list[Point]:
    return [
        Point("battery", "soc", number * 10**9, number / 8)
        for number in range(first, first + BATCH)
    ]
