"""A program on a vehicle that carries out commands, and knows which came, and how often."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.rig.parts import DeviceRig


class Door:
    """A program that carries out commands, and counts each by its number."""

    def __init__(self, world: World, rig: DeviceRig) -> None:
        self.world = world
        self.rig = rig
        self.came: Counter[str] = Counter()
        self.sent: list[str] = []

    async def open(self) -> Door:
        local = await self.world.connect(self.rig.url)
        await local.subscribe("cmd.unlock", cb=self._unlock)
        await local.flush()
        return self

    async def _unlock(self, message: Msg) -> None:
        asked = json.loads(message.data)
        self.came[str(asked["params"]["number"])] += 1
        await message.respond(b"{}")

    async def command(self, hub: Client) -> None:
        """Send one, and wait for it."""
        number = str(len(self.sent))
        self.sent.append(number)
        body = json.dumps({"id": f"unlock{number}", "params": {"number": number}}).encode()
        async with asyncio.timeout(DEADLINE_S):
            await _publish(hub, body)
            while number not in self.came:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def each_once(self) -> None:
        assert self.came == Counter(self.sent)


async def _publish(hub: Client, body: bytes) -> None:
    """Have a command stored, however long a cluster takes to have a leader: by its id it is one."""
    while True:
        try:
            await hub.jetstream().publish("fleet.prod.veh.VID-001.cmd.unlock", body)
        except NatsError:
            await asyncio.sleep(0.1)
        else:
            return
