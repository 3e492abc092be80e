"""A hub that is moved under load."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from backhaul_agent.client import connect
from tests.integration.readings import keep
from tests.support.rig.parts import HubRig, program, run_to_end
from tests.support.run_here import run_here
from tests.support.waiting import until

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig.parts import DeviceRig
    from tests.support.rig.relay import Relay


class Load:
    """A vehicle's program that has readings kept all the time."""

    def __init__(self, rig: DeviceRig) -> None:
        self._rig = rig
        self._ends = asyncio.Event()
        self.kept = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep on for as long as this is entered; at the end all that was said is kept."""
        self._ends.clear()
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._ends.set()
            await task

    async def more(self) -> None:
        """Wait until some more is kept."""
        wanted = self.kept + 1000
        await until(lambda: self.kept >= wanted, deadline_s=DEADLINE_S)

    async def _run(self) -> None:
        async with connect(self._rig.url) as agent:
            while not self._ends.is_set():
                await keep(agent, self.kept + 1, 250)
                self.kept += 250


class Move:
    """A hub and the one that it moves to; the other's server runs."""

    def __init__(self, world: World, new: HubRig) -> None:
        self.world, self.old, self.new = world, world.hub, new
        self._words = [
            *(program("backhaul-hub"), "migrate", "--dir", str(self.old.directory)),
            *("--to", new.addresses()[0]),
            *("--to-leaf", f"nats-leaf://127.0.0.1:{new.leaf_port}"),
        ]

    async def run(self, *words: str) -> str:
        """Run `backhaul-hub migrate` to its end, for the old hub."""
        return await run_to_end([*self._words, *words])

    async def killed_in_the_middle(self) -> None:
        """Run it until the first stream is there, then kill it."""
        process = await asyncio.create_subprocess_exec(*self._words)
        async with self.new.connection() as there, asyncio.timeout(DEADLINE_S):
            await until(there.jetstream().streams_info)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def follow(self, link: Relay) -> None:
        """Do what is left to an operator: the new hub's directory and control plane, the vehicles."""
        source, target = self.old.directory, self.new.directory
        await run_to_end(["cp", "-r", f"{source}/migrated/.", str(target)])
        take_sizes_over(self.old, self.new)
        await self.new.server.stop()
        await self.new.server.start()
        await self.new.server.wait_listening(self.new.client_port)
        link._target = ("127.0.0.1", self.new.leaf_port)  # the name in leaf.conf has moved
        await link.cut()
        await link.heal()
        self.world.hub = self.new
        await self.new.start_control()


@asynccontextmanager
async def another_hub(world: World) -> AsyncIterator[Move]:
    """Have a second hub whose server runs."""
    old = world.hub
    new = HubRig(world.directory / "hub2", watermark_interval_s=0.2, run=run_here)
    await new.init("--keys-of", str(old.directory))
    await new.server.start()
    try:
        await new.server.wait_listening(new.client_port)
        yield Move(world, new)
    finally:
        world.hub = old
        await new.stop()


def take_sizes_over(old: HubRig, new: HubRig) -> None:
    """Streams keep their limits; what `init` has reckoned from the free disk is lower by now."""
    text = (new.directory / "hub.toml").read_text()
    for line in re.findall(
        r"^\w+_bytes_max = .*$", (old.directory / "hub.toml").read_text(), re.MULTILINE
    ):
        text = re.sub(rf"^{line.split()[0]} = .*$", line, text, flags=re.MULTILINE)
    (new.directory / "hub.toml").write_text(text)
