"""A hub of three servers on this machine, each to be ended and started by itself."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from backhaul_hub.nats.system_requests import ask_all
from backhaul_hub.shards import api_subject
from backhaul_hub.streams.replicas import Replica, replicas
from tests.support.rig.parts import NO_PAGE, HubRig, Part, RigError, program, run_to_end
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rig.parts import Runner

NAMES = ("a", "b", "c")
_READY_S = 120.0


class ClusterRig(HubRig):
    """A hub in a directory: three nats-servers and one control plane."""

    def __init__(
        self, directory: Path, *, watermark_interval_s: float = 1.0, run: Runner = run_to_end
    ) -> None:
        super().__init__(directory, watermark_interval_s=watermark_interval_s, run=run)
        self.client_ports = {name: free_port() for name in NAMES}
        self.leaf_ports = {name: free_port() for name in NAMES}
        self.servers = {
            name: Part(
                f"hub server {name}",
                [program("nats-server"), "-c", str(directory / "servers" / name / "hub.conf")],
                directory.parent / f"hub-server-{name}.log",
            )
            for name in NAMES
        }

    async def init(self, *words: str) -> None:
        """Write the hub directory with the real command, and more words for it."""
        places = (
            f"{name}=127.0.0.1:{self.client_ports[name]}:{self.leaf_ports[name]}:{free_port()}"
            for name in NAMES
        )
        await self.run(
            [
                program("backhaul-hub"),
                "init",
                str(self.directory),
                *(word for place in places for word in ("--server", place)),
                "--watermark-interval",
                str(self._watermark_interval_s),
                "--up-gib",
                "1",
                *NO_PAGE,
                *words,
            ]
        )

    async def start(self) -> None:
        """Start all servers and the control plane, and wait until they answer."""
        await asyncio.gather(*(self.start_server(name) for name in NAMES))
        await self.start_control()

    async def start_server(self, name: str) -> None:
        """Start one server (again) and wait until it takes connections."""
        await self.servers[name].start()
        await self.servers[name].wait_listening(self.client_ports[name])

    async def stop(self) -> None:
        """Stop all of it, the control plane first."""
        await self.control.stop()
        await asyncio.gather(*(server.stop() for server in self.servers.values()))

    def store(self, server: str) -> Path:
        """Return where a server keeps its streams."""
        return self.directory / "servers" / server / "jetstream"

    def addresses(self) -> list[str]:
        """Return the client addresses of all servers."""
        return [f"nats://127.0.0.1:{port}" for port in self.client_ports.values()]

    async def info(self, stream: str, *, wait_s: float = _READY_S) -> dict[str, Any]:
        """Return a stream's info, from its leader, once there is one.

        Raises:
            RigError: there was none in `wait_s` seconds.
        """
        loop = asyncio.get_running_loop()
        client = await self.connect(max_reconnect_attempts=-1)
        try:
            end_s = loop.time() + wait_s
            while loop.time() < end_s:
                try:
                    answer = await client.request(
                        api_subject(f"STREAM.INFO.{stream}"), b"", timeout=1
                    )
                except NatsError:
                    await asyncio.sleep(0.1)
                    continue
                found: dict[str, Any] = json.loads(answer.data)
                if found.get("cluster", {}).get("leader"):
                    return found
                await asyncio.sleep(0.1)
        finally:
            await client.close()
        raise RigError(f"{stream} has no leader in {wait_s:g} s")

    async def leader(self, stream: str) -> str:
        """Return the name of the server that leads a stream. Raises: RigError: none does."""
        name: str = (await self.info(stream))["cluster"]["leader"]
        return name

    async def whole(self, stream: str) -> None:
        """Wait until every server has all of a stream. Raises: RigError: not in two minutes."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _READY_S
        while loop.time() < end_s:
            replicas = (await self.info(stream))["cluster"].get("replicas") or []
            if len(replicas) == len(NAMES) - 1 and all(each["current"] for each in replicas):
                return
            await asyncio.sleep(0.1)
        raise RigError(f"not every server has all of {stream} in {_READY_S:g} s")

    async def held(self) -> dict[str, dict[str, Replica]]:
        """Return what each server that answers says that it holds, by stream and server."""
        client = await self.connect("system", max_reconnect_attempts=-1)
        try:
            asked = {"accounts": True, "streams": True}
            answers = await ask_all(client, "JSZ", len(NAMES), asked)
        finally:
            await client.close()
        return replicas(answers)

    async def copied(self, server: str) -> None:
        """Wait until a server holds all that the others held. Raises: RigError: not in two minutes."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _READY_S
        wanted: dict[str, int] = {}
        while loop.time() < end_s:
            held = await self.held()
            others = {
                stream: max(
                    (each.last_seq for name, each in servers.items() if name != server), default=0
                )
                for stream, servers in held.items()
            }
            wanted = wanted or others
            nothing = Replica(1, 0, 0)
            if all(
                held.get(stream, {}).get(server, nothing).last_seq >= last
                for stream, last in wanted.items()
            ):
                return
            await asyncio.sleep(0.1)
        raise RigError(f"{server} does not hold in {_READY_S:g} s what the others held")
