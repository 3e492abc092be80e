"""A vehicle beside its technician: a leaf server, an agent that serves its page, a link that can be cut, and a hub."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from backhaul_agent.cli.main import cli as agent_cli
from backhaul_agent.client import connect
from backhaul_hub.cli.main import cli as hub_cli
from tests.integration.conftest import World
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.rig.parts import DeviceRig
    from tests.support.rig.relay import Relay

DEVICE = "VID-001"
HTML = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
HTML_NODE = "<img src=x onerror=window.hurt=1>"


class Roadside:
    """What is there, and what is done with it."""

    def __init__(self, world: World, vehicle: DeviceRig, link: Relay, port: int) -> None:
        self.world, self.vehicle, self.link = world, vehicle, link
        self.url = f"http://127.0.0.1:{port}"

    async def shown(self) -> dict[str, str]:
        """Return what `backhaul-agent page` shows."""
        words = ["page", "--json", "--config", str(self.vehicle.agent_toml)]
        done = await asyncio.to_thread(CliRunner().invoke, agent_cli, words)
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        found: dict[str, str] = json.loads(done.stdout)
        return found

    async def operator(self, *arguments: str) -> str:
        words = [*arguments, "--dir", str(self.world.hub.directory)]
        done = await asyncio.to_thread(CliRunner().invoke, hub_cli, words)
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        return done.stdout

    async def say(self, **values: Any) -> None:
        """Publish points, `node_type=value`."""
        async with connect(self.vehicle.url) as agent:
            for name, value in values.items():
                node, _, type_ = name.partition("_")
                await agent.publish(node, type_, value)


@asynccontextmanager
async def roadside(directory: Path, health: str = "") -> AsyncIterator[Roadside]:
    """Start all of it; stop it at the end."""
    port = free_port()
    async with AsyncExitStack() as stack:
        world = await World(directory, stack).start()
        vehicle, link = await world.vehicle(DEVICE)
        await vehicle.agent.stop()
        with vehicle.agent_toml.open("a") as toml:
            toml.write(
                f'\n[page]\nlisten = "127.0.0.1:{port}"\n[page.units]\n"battery.soc" = "%"\n'
                '"drive.speed" = "km/h"\ntemp = "°C"\n'
            )
            toml.write(
                health or "[health]\ninterval_s = 0.2\npatience = 0\nlink_down_after_s = 0\n"
            )
        await vehicle.start_agent()
        code = directory / DEVICE / "backhaul-agent" / "page.json"
        await until(code.exists, "the page is served")
        yield Roadside(world, vehicle, link, port)
