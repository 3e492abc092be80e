"""Two machines with one identity."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from tests.integration.epochs import copy
from tests.integration.older_copies import older, parts
from tests.integration.readings import keep

from .conftest import World, vouched

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig
    from tests.support.rig.relay import Relay


FRAME = 250


class Machines:
    """Disks that take turns in one vehicle: each is saved where another is put in."""

    def __init__(self, world: World, rig: DeviceRig, relay: Relay) -> None:
        self.kept = 0
        self.world, self.rig, self.relay = world, rig, relay

    async def save(self, name: str) -> None:
        """Stop the machine, and keep its disk."""
        await self.rig.stop()
        for part in parts(self.rig):
            await copy(part, older(part, name))

    async def put_in(self, name: str) -> None:
        for part in parts(self.rig):
            await copy(older(part, name), part)

    async def start_held_back(self) -> None:
        """Start the machine in a way that none of its own first words reaches the hub before `cut_keep_stop` has cut."""
        await self.rig.leaf.start()
        await self.rig.leaf.wait_listening(self.rig.client_port)
        await self.hold_back(on=True)
        await self.rig.start_agent()

    async def hold_back(self, *, on: bool) -> None:
        """Pause what the hub's sources read from, or go on."""
        pause = {"pause_until": "2100-01-01T00:00:00Z"} if on else {}
        async with self.rig.connection() as client:
            for stream in ("OUT_live", "OUT_bulk"):
                names = json.loads((await client.request(f"$JS.API.CONSUMER.NAMES.{stream}")).data)
                for name in names["consumers"]:
                    verb = f"$JS.API.CONSUMER.PAUSE.{stream}.{name}"
                    answer = json.loads(
                        (await client.request(verb, json.dumps(pause).encode())).data
                    )
                    assert answer.get("paused", False) is on, answer

    async def keep(self, frames: int) -> None:
        async with connect(self.rig.url) as agent:
            await keep(agent, self.kept + 1, frames * FRAME)
        self.kept += frames * FRAME

    async def settled(self) -> None:
        """Wait until nothing that this machine has kept waits for the hub any more."""
        status: dict[str, Any] = {}
        async with self.rig.connection() as client:
            for _ in range(2400):
                status = json.loads((await client.request("agent.status", b"")).data)
                bulk = status["lanes"]["bulk"]
                ledger = status["ledger"]
                # What was moved stands in an epoch of its own, which is a former one from the start.
                some = bulk["last_seq"] or ledger["compared_epochs"]
                whole = some and bulk["watermark"] == bulk["last_seq"]
                if whole and not ledger["former_epochs_owed"] and not ledger["staged_points"]:
                    return
                await asyncio.sleep(0.05)
        pytest.fail(f"still owed: {status}")

    async def cut_keep_stop(self, frames: int, events: int = 0) -> None:
        """Keep what goes on in the epoch as it is: the hub has vouched for it before the link is cut."""
        await vouched(self.rig)
        await self.relay.cut()
        await self.hold_back(on=False)
        await self.keep(frames)
        async with connect(self.rig.url) as agent:
            for number in range(events):
                await agent.event("door", data=number)
        await self.rig.stop()
        await self.relay.heal()
