"""Two machines with a control plane each, of one hub, on this machine: one leads, the other follows."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from tests.support.rig.parts import HubRig, Part, RigError, program, wait_for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nats.aio.client import Client

_READY_S = 120.0
_ASK_S = 1.0
_LOOK_S = 0.02
# How far hub.db goes in the journal: whoever follows need not note the last beats.
_OWN = {"journal"}


class Machines:
    """Machines `a`, with the hub's directory, and `b`, with a copy of it.

    Args:
        hub: its server runs, and its control plane has run once and is stopped.
        command: runs a control plane in a directory; the real one where none is given.
    """

    def __init__(self, hub: HubRig, command: Callable[[Path], list[str]] | None = None) -> None:
        self.hub = hub
        self._command = command or _up
        self.places = {"a": hub.directory, "b": hub.directory.with_name("hub-b")}
        self.parts = {name: self._part(name) for name in self.places}

    async def start(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin a journal on `a`, have it lead, and `b` follow; return when `b` is ready.

        `before`: is called once the directory of `b` is there, and nothing runs.
        """
        leave = shutil.ignore_patterns("jetstream", "hub.db*", "servers")
        shutil.copytree(self.places["a"], self.places["b"], ignore=leave)
        for name, other in (("a", "b"), ("b", "a")):
            with (self.places[name] / "hub.toml").open("a") as file:
                file.write(f'\n[standby]\nmachine = "{name}"\nothers = ["{other}"]\n')
        if before is not None:
            await before()
        log = self.parts["a"].log
        first = Part("control plane a", [*_up(self.places["a"]), "--begin-journal"], log)
        await first.start()
        try:
            await wait_for_log(first, '"event": "ready"')
        finally:
            await first.stop()
        await self.parts["a"].start()
        await self.parts["b"].start()
        async with self.client() as client:
            await self.ready(client)

    async def stop(self) -> None:
        """Stop both, also one that stands still."""
        for part in self.parts.values():
            try:
                part.send(signal.SIGCONT)
            except RigError:
                continue
            await part.stop()

    def client(self) -> Any:
        """Connect as the hub's operator, for as long as it takes."""
        return self.hub.connection(max_reconnect_attempts=-1, reconnect_time_wait=0.2)

    async def status(self, client: Client) -> dict[str, Any]:
        """Return who leads and who follows; empty while nobody answers."""
        try:
            answer = await client.request("hub.status", b"", timeout=_ASK_S)
        except NatsError:
            return {}
        found: dict[str, Any] = json.loads(answer.data).get("standby") or {}
        return found

    async def led_by(self, client: Client, *names: str) -> str:
        """Wait until one of these machines leads, and return which. Raises: RigError: not in two minutes."""
        found = await self._until(client, lambda status: status["leads"] in names)
        return str(found["leads"])

    async def ready(self, client: Client) -> str:
        """Wait until the machine that follows is ready; return the one that leads. Raises: RigError: as above."""
        found = await self._until(client, lambda status: status["follow"][0]["ready"])
        return str(found["leads"])

    def other(self, name: str) -> str:
        """Return the other machine's name."""
        return "b" if name == "a" else "a"

    def tables(self, name: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of a machine's hub.db, by table, sorted."""
        with closing(sqlite3.connect(self.places[name] / "hub.db")) as database:
            names = [
                table
                for (table,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
                if table not in _OWN
            ]
            return {
                table: sorted(database.execute(f"SELECT * FROM {table}"), key=repr)
                for table in names
            }

    async def _until(self, client: Client, holds: Any) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _READY_S
        found: dict[str, Any] = {}
        while loop.time() < end_s:
            found = await self.status(client)
            if found and holds(found):
                return found
            await asyncio.sleep(_LOOK_S)
        logs = "\n".join(part.logged()[-1500:].decode() for part in self.parts.values())
        raise RigError(f"the machines never came to that; the last status is {found}\n{logs}")

    def _part(self, name: str) -> Part:
        log = self.hub.directory.parent / f"control-{name}.log"
        return Part(f"control plane {name}", self._command(self.places[name]), log)


def _up(place: Path) -> list[str]:
    return [program("backhaul-hub"), "up", "--no-page", "--dir", str(place)]
