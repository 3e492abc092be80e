"""A hub that serves its page, three vehicles, and people: for browsers to look at.

plant-7 stands above VID-001 and VID-003, depot above VID-002. VID-003 has a node whose name is HTML, and so is what that says.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats
from click.testing import CliRunner

from backhaul_agent.client import connect
from backhaul_hub.cli.main import cli
from backhaul_spark.nats.offsets import ReadMark, to_json
from tests.integration.conftest import World
from tests.support.own_map import shapes_tile, write_map
from tests.support.rig.parts import HubRig
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.rig.parts import DeviceRig
    from tests.support.rig.relay import Relay

MINE, THEIRS, ODD = "VID-001", "VID-002", "VID-003"
HTML = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
HTML_NODE = "<img src=x onerror=window.hurt=1>"


_PAGE = """[page]
map = "town.pmtiles"
units = {"battery.soc" = "%", "drive.speed" = "km/h", temp = "°C"}
"""


class PageHub(HubRig):
    """A hub with a page."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self.page_port, self.websocket_port = free_port(), free_port()
        self.health = "interval_s = 0.2\npatience = 0\nlink_down_after_s = 0"
        """So that a test need not wait for minutes; empty: as hubs have it."""

    async def init(self, *words: str) -> None:
        ports = (self.page_port, self.websocket_port)
        page = ("--page-port", str(ports[0]), "--websocket-port", str(ports[1]))
        await super().init(*page, *words)
        toml = self.directory / "hub.toml"
        text = toml.read_text().replace("[page]\n", _PAGE, 1)
        toml.write_text(f"{text}\n[health]\n{self.health}\n")
        write_map(self.map, shapes_tile())

    @property
    def map(self) -> Path:
        return self.directory / "town.pmtiles"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.page_port}"


class Park:
    """What is there, and what an operator does with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.vehicles: dict[str, DeviceRig] = {}
        self.links: dict[str, Relay] = {}

    @property
    def hub(self) -> PageHub:
        assert isinstance(self.world.hub, PageHub)
        return self.world.hub

    async def operator(self, *arguments: str) -> str:
        words = [*arguments, "--dir", str(self.hub.directory)]
        done = await asyncio.to_thread(CliRunner().invoke, cli, words)
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        return done.stdout

    async def add_person(self, name: str, group: str, may: str) -> None:
        await self.operator("user", "add", name, "--group", group, "--may", may)

    async def link(self, name: str, *words: str) -> str:
        """Return a link that logs somebody in, once."""
        answer = await self.operator("user", "link", name, "--json", *words)
        return str(json.loads(answer)["url"])

    async def say(self, device: str, **values: Any) -> None:
        """Have a vehicle publish points, `node_type=value`."""
        async with connect(self.vehicles[device].url) as agent:
            for name, value in values.items():
                node, _, type_ = name.partition("_")
                await agent.publish(node, type_, value)


@asynccontextmanager
async def as_person(park: Park, name: str) -> AsyncIterator[Any]:
    """Connect with somebody's credentials, as a program does."""
    client = await nats.connect(
        park.hub.addresses()[0],
        user_credentials=str(park.hub.directory / "people" / f"{name}.creds"),
        inbox_prefix=f"inbox.{name}".encode(),
    )
    try:
        yield client
    finally:
        await client.close()


async def ask(client: Any, subject: str, **question: Any) -> dict[str, Any]:
    answer = await client.request(subject, json.dumps(question).encode(), timeout=30)
    found: dict[str, Any] = json.loads(answer.data)
    return found


def ingest_was_at(root: Path, seq: int) -> None:
    """Leave a checkpoint as Spark writes it: a batch that ended, and where it was in UP."""
    checkpoint = root / "_checkpoints" / "ingest"
    for part, text in (
        ("offsets", f"v1\n{{}}\n{json.dumps(to_json({'UP_00': ReadMark(seq, 'then')}))}"),
        ("commits", "v1\n{}"),
    ):
        (checkpoint / part).mkdir(parents=True)
        (checkpoint / part / "0").write_text(text)


@asynccontextmanager
async def park(directory: Path, *, addressed: bool = True) -> AsyncIterator[Park]:
    """Start all of it, the vehicles at places of their own unless told not to; stop it at the end."""
    async with AsyncExitStack() as stack:
        world = World(directory, stack, PageHub)
        await world.start()
        some = Park(world)
        for device in (MINE, THEIRS, ODD):
            some.vehicles[device], some.links[device] = await world.vehicle(device)
        for group, device in (("plant-7", MINE), ("depot", THEIRS), ("plant-7", ODD)):
            if device != ODD:
                await some.operator("node", "create", group)
            await some.operator("node", "move", device, "--to", group)
        for number, device in enumerate((MINE, THEIRS, ODD)):
            place = {"gps_lat": 48.1 + number / 9, "gps_lon": 11.5 - number} if addressed else {}
            await some.say(device, battery_soc=80.5 - number, **place)
        async with connect(some.vehicles[ODD].url) as agent:
            await agent.publish(HTML_NODE, "text", HTML)
        for name, group, may in (
            ("anna", "plant-7", "write"),
            ("dora", "depot", "command"),
            ("olga", "fleet", "command"),
        ):
            await some.add_person(name, group, may)
        yield some
