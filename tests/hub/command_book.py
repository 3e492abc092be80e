"""Operators' commands at the hub, without I/O."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from nats.errors import MaxPayloadError

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.commands.book import CommandBook
from backhaul_hub.commands.command import Command, Key
from backhaul_hub.commands.delivery import Delivery, read_delivery
from backhaul_hub.commands.outcome import Heard, read_result
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.config import CommandsSection
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.lane_key import LaneKey
from tests.support.hub_sync import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backhaul_hub.db.store import Registry


S = 1_000_000_000


NOW = 1_700_000_000 * S


RULES = CommandsSection(rows_max=10)


DEVICES = {"VID-001"}


SUBJECT = "fleet.prod.veh.VID-001.cmd.door.unlock"


def examined(id_: str, body: dict[str, Any]) -> Examined:
    point = Point(node="", type="", time=NOW, value=Opaque(6, json.dumps(body).encode()))
    uplink = parse_uplink(f"up.VID-001.r.{id_}")
    key = LaneKey("VID-001", "live", 1)
    return Examined(key, 2, uplink, encode_point(point, epoch=1, seq=2))


def arrived(data: bytes = b"", subject: str = SUBJECT, *, full: bool = False) -> Command:
    return read_delivery(Delivery(subject, data, 7, NOW), RULES, DEVICES, full=full)


def vehicle_says(body: dict[str, Any], time_ns: int = NOW) -> Heard:
    value = Opaque(6, json.dumps(body).encode())
    return read_result(Point(node="", type="", time=time_ns, value=value))


def booked(**fields: Any) -> tuple[CommandBook, Command]:
    book, command = CommandBook(RULES), arrived(msgspec.json.encode({"id": "a"} | fields))
    book.add(command)
    return book, command


KEY = Key("VID-001", "a")


DONE = {"state": "done", "result": {"ok": True}, "runs": 1}


class Running:
    """A shell that runs with a real hub.db; what goes to the server is kept."""

    def __init__(self, registry: Registry) -> None:
        config: Any = SimpleNamespace(commands=RULES, twin=SimpleNamespace(env="prod"))
        clock = FakeClock()
        clock.ns = NOW
        self.shell = CommandShell(config, clock, lambda: DEVICES, lambda _: None)
        self.registry = registry
        self.told: list[Any] = []
        self.down: list[str] = []
        self.acknowledged: list[str] = []
        self.bytes_max = 1000

    async def publish(self, subject: str, body: bytes) -> None:
        """Take what is told, and what is written into DOWN."""
        if subject.startswith("in."):
            self.down.append(subject)
        elif len(body) > self.bytes_max:
            raise MaxPayloadError
        else:
            self.told.append(json.loads(body))

    async def purge(self, stream: str, **what: int | str) -> None:
        """Have no message to purge."""

    def message(self, id_: str) -> Any:
        async def respond(said: bytes) -> None:
            assert said == b"+ACK"
            self.acknowledged.append(id_)

        reply = f"$JS.ACK.TWIN_CMD.control.1.42.9.{NOW}.0"
        data = json.dumps({"id": id_}).encode()
        return SimpleNamespace(reply=reply, subject=SUBJECT, data=data, respond=respond)

    async def take(self, *ids: str) -> None:
        await self.shell._take([self.message(id_) for id_ in ids], self.registry)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server: Any = self
        tasks = [
            asyncio.create_task(work)
            for work in (
                self.shell._tell(server, self.registry),
                self.shell._send(server, self.registry),
            )
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ends(self, id_: str, body: dict[str, Any]) -> None:
        """Have the vehicle's last word on a command read and stored."""
        self.shell.on_message(examined(id_, body), is_new=True)
        await self.registry.write(self.shell.take_changes())
        self.shell.stored()


def sent(book: CommandBook, id_: str, bytes_: int = 0) -> Command:
    """Have a command in the book that DOWN has."""
    command = arrived(msgspec.json.encode({"id": id_, "params": "x" * bytes_}))
    book.add(command)
    book.sent(command, NOW + 1)
    return command
