"""The hub's command line, as an operator and people with credentials call it."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from tests.support.rig.parts import program

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .conftest import World


class Line:
    """The command line: of the operator, and of people with their credentials."""

    def __init__(self, world: World) -> None:
        self._world = world

    def creds(self, name: str) -> Path:
        return self._world.directory / f"{name}.creds"

    async def operator(self, *arguments: str) -> str:
        return await self._run(*arguments, "--dir", str(self._world.hub.directory))

    async def person(self, name: str, *arguments: str) -> str:
        server = self._world.hub.addresses()[0]
        return await self._run(*arguments, "--creds", str(self.creds(name)), "--server", server)

    @asynccontextmanager
    async def running(self, name: str, *arguments: str) -> AsyncIterator[Process]:
        """Run a command that goes on until it is ended."""
        server = self._world.hub.addresses()[0]
        login = ("--creds", str(self.creds(name)), "--server", server)
        process = await asyncio.create_subprocess_exec(
            *(program("backhaul-hub"), *arguments, *login, "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    async def json(self, name: str, *arguments: str) -> Any:
        return json.loads(await self.person(name, *arguments, "--json"))

    async def commanded(self, name: str, *arguments: str) -> Any:
        """Send a command, and again under its id where the hub is slow to record it."""
        while True:
            try:
                return await self.json(name, "command", *arguments, "--id", "once")
            except AssertionError as error:
                if "not taken yet" not in str(error):
                    raise

    async def refused(self, name: str, *arguments: str) -> str:
        with pytest.raises(AssertionError) as caught:
            await self.person(name, *arguments)
        return str(caught.value)

    async def add(self, name: str, group: str, may: str) -> None:
        options = ("--group", group, "--may", may, "--out", str(self.creds(name)))
        assert f"{name} may {may} below {group}" in await self.operator(
            "user", "add", name, *options
        )

    async def _run(self, *arguments: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, cli, list(arguments))
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        return done.stdout
