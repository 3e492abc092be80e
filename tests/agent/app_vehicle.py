"""A vehicle's leaf server and agent with the files of the real commands, and programs that log in there."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
from nats.errors import Error as NatsError

from backhaul_agent.cli.main import cli
from backhaul_agent.client import Agent, connect
from backhaul_codec.protocol.identity import Identity, encode_identity
from tests.support.rig.parts import Part, program
from tests.support.rig.patient import PATIENCE_S, PatientClient
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nats.aio.client import Client


class Login:
    """A program logged in as a plain client; `refused` is what the server refused it."""

    def __init__(self, client: Client, refused: list[str]) -> None:
        self.client = client
        self.refused = refused

    async def refusals(
        self, publish: Iterable[str], subscribe: Iterable[str]
    ) -> tuple[set[str], set[str]]:
        """Try all of it, and return what was refused."""
        self.refused.clear()
        for subject in publish:
            await self.client.publish(subject, b"{}")
        for subject in subscribe:
            await self.client.subscribe(subject)
        # The server answers in order: with this refusal all others have come.
        await self.client.publish("no.right.to.this", b"x")
        await until(lambda: any("no.right.to.this" in error for error in self.refused))
        # The API under the name of its domain is refused under the plain one.
        plain = "\n".join(self.refused)
        found = plain + plain.replace("$js.api.stream.names", "$js.vid-001.api.stream.names")
        return (
            {each for each in publish if f'publish to "{each.lower()}"' in found},
            {each for each in subscribe if f'subscription to "{each.lower()}"' in found},
        )


class Vehicle:
    """A leaf server and an agent, with the files of the real commands."""

    def __init__(self, directory: Path, stack: AsyncExitStack, hub_port: int) -> None:
        self.dir = directory / "etc"
        self.port, self.hub_port = free_port(), hub_port
        self.url = f"nats://127.0.0.1:{self.port}"
        self._stack = stack
        self.leaf = Part(
            "leaf",
            [program("nats-server"), "-c", str(self.dir / "leaf.conf")],
            directory / "leaf.log",
        )
        self.agent = Part(
            "agent",
            [program("backhaul-agent"), "run", "--config", str(self.dir / "agent.toml")],
            directory / "agent.log",
        )
        document = directory / "identity.json"
        address = f"nats-leaf://any:any@127.0.0.1:{hub_port}"
        document.write_text(
            encode_identity(Identity(device="VID-001", token="tok1", leaf_urls=(address,)))
        )
        self.enrol = ("enrol", "--file", str(document), "--state-dir", str(directory / "var"))

    async def run(self, *words: str) -> str:
        done = await asyncio.to_thread(
            CliRunner().invoke, cli, [*words, "--dir", str(self.dir)], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        return done.output

    async def start(self) -> None:
        await self.run(*self.enrol, "--port", str(self.port))
        self._stack.push_async_callback(self.leaf.stop)
        self._stack.push_async_callback(self.agent.stop)
        await self.leaf.start()
        await self.leaf.wait_listening(self.port)
        await self.agent.start()
        own = await self.login("agent.nk")
        async with asyncio.timeout(60):
            while True:
                with suppress(NatsError):
                    await own.client.request("agent.status", b"", timeout=5)
                    return
                await asyncio.sleep(0.05)

    async def login(self, key: str = "", **options: Any) -> Login:
        """Log in with a key file of the vehicle, without any where there is no name."""
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error))

        if key:
            options["nkeys_seed_str"] = (self.dir / key).read_text().strip()
        client = PatientClient()
        self._stack.push_async_callback(client.close)
        try:
            await client.connect(
                self.url,
                error_cb=note,
                allow_reconnect=False,
                connect_timeout=int(PATIENCE_S),
                **options,
            )
        except NatsError:
            await client.close()
            raise
        return Login(client, refused)

    async def program(self, name: str) -> Agent:
        """Log in as a program, with the Python client."""
        key = str(self.dir / "apps" / f"{name}.nk")
        return await self._stack.enter_async_context(connect(self.url, nkey=key, wait_s=PATIENCE_S))
