"""Starting and stopping the real parts: servers, agents, the control plane; each by its handle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nats.errors import Error as NatsError

from backhaul_hub.private_files import write_private
from tests.support.rig.hub_logins import HubLogins
from tests.support.rig.patient import connect
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from nats.aio.client import Client

    Runner = Callable[[list[str]], Awaitable[str]]

# Longer than an agent takes to end in order on a machine with other work; then it is killed.
_STOP_TIMEOUT_S = 60.0


class RigError(Exception):
    """A part did not start, or ended when it should not have."""


NO_PAGE = ("--page-port", "0", "--websocket-port", "0")
"""Words for `init`: tests that are not about the page take none of its ports."""


def program(name: str) -> str:
    """Return the path of an installed program: beside this Python, else on PATH.

    Raises:
        RigError: it is nowhere.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RigError(f"{name} is not installed; run: make setup")
    return found


class Part:
    """One child process, its log in a file of its own."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        # Its configuration names a log of its own: here it is where whatever it says else goes, too.
        own_log = ["-l", str(log)] if Path(arguments[0]).name == "nats-server" else []
        self._arguments = [*arguments, *own_log]
        self.log = log
        self.before: tuple[str, ...] = ()
        """Words before the command: a program that runs it."""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            RigError: it does not run.
        """
        if self._process is None or self._process.returncode is not None:
            raise RigError(f"{self.name} does not run")
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process is there, even if it stands still."""
        return self._process is not None and self._process.returncode is None

    @property
    def logged_bytes(self) -> int:
        """How long the log is."""
        return self.log.stat().st_size if self.log.exists() else 0

    def logged(self, offset: int = 0) -> bytes:
        """Return the log from byte `offset` on."""
        return self.log.read_bytes()[offset:] if self.log.exists() else b""

    async def start(self) -> None:
        """Start it (again); its output is added to the log.

        Raises:
            RigError: it runs already; nobody could end the first one.
        """
        if self._process is not None and self._process.returncode is None:
            raise RigError(f"{self.name} runs already")
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.before,
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal (SIGKILL for a crash) and wait until it is gone."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(number)
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    def send(self, number: int) -> None:
        """Send it a signal. Raises: RigError: it does not run."""
        os.kill(self.pid, number)

    def assert_alive(self) -> None:
        """Complain where it has ended by itself.

        Raises:
            RigError: with the end of its log.
        """
        if self._process is not None and self._process.returncode is not None:
            tail = self.logged().decode(errors="replace")[-1500:]
            raise RigError(f"{self.name} ended with status {self._process.returncode}:\n{tail}")

    async def wait_listening(self, port: int, timeout_s: float = 120.0) -> None:
        """Wait until something accepts connections on a loopback port.

        Raises:
            RigError: nothing did in time, or the process ended.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            self.assert_alive()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.02)
        raise RigError(f"{self.name} does not listen on {port}; see {self.log}")


async def run_to_end(arguments: list[str], *, log: Path | None = None) -> str:
    """Run a program to its end and return its standard output.

    Raises:
        RigError: it failed; with what it wrote to standard error.
    """
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if log is not None:
        log.write_bytes(errors)
    if process.returncode != 0:
        command = " ".join(arguments[:3])
        raise RigError(f"{command} ... ended with {process.returncode}:\n{errors.decode()[-3000:]}")
    return output.decode()


class HubRig(HubLogins):
    """A hub in a directory: its nats-server and its control plane.

    `run` runs a command to its end, and returns what it printed.
    """

    def __init__(
        self, directory: Path, *, watermark_interval_s: float = 1.0, run: Runner = run_to_end
    ) -> None:
        self.directory = directory
        self.run = run
        self.client_port = free_port()
        self.leaf_port = free_port()
        self._watermark_interval_s = watermark_interval_s
        logs = directory.parent
        self.server = Part(
            "hub server",
            [program("nats-server"), "-c", str(directory / "hub.conf")],
            logs / "hub-server.log",
        )
        self.control = Part(
            "hub control plane",
            [program("backhaul-hub"), "up", "--dir", str(directory)],
            logs / "hub-control.log",
        )

    async def init(self, *words: str) -> None:
        """Write the hub directory with the real command, and more words for it."""
        await self.run(
            [
                program("backhaul-hub"),
                "init",
                str(self.directory),
                "--port",
                str(self.client_port),
                "--leaf-port",
                str(self.leaf_port),
                "--watermark-interval",
                str(self._watermark_interval_s),
                "--up-gib",
                "1",
                *NO_PAGE,
                *words,
            ]
        )

    async def start(self) -> None:
        """Start server and control plane, and wait until both answer."""
        await self.server.start()
        await self.server.wait_listening(self.client_port)
        await self.start_control()

    async def start_control(self) -> None:
        """Start the control plane and wait until it says that it is ready."""
        seen = self.control.logged_bytes
        await self.control.start()
        await wait_for_log(self.control, '"event": "ready"', seen)

    async def stop(self) -> None:
        """Stop both, the control plane first."""
        await self.control.stop()
        await self.server.stop()


@dataclass(slots=True)
class DeviceRig:
    """One vehicle: its leaf server and its agent."""

    device: str
    client_port: int
    leaf: Part
    agent: Part
    agent_toml: Path
    hub: HubRig
    links: Mapping[int, int]
    """By the port of a server of the hub: the port of the link that leads there."""

    @classmethod
    async def add(
        cls,
        hub: HubRig,
        device: str,
        directory: Path,
        *,
        link_port: int | None = None,
        links: Mapping[int, int] | None = None,
        link_mode: str = "",
        nodes: Sequence[str] = (),
    ) -> Self:
        """Enrol a device with the real command; its link goes to `link_port` (a relay's).

        To a hub of several servers it has `links`. `nodes` have streams of their own.
        """
        directory.mkdir(parents=True, exist_ok=True)
        await hub.run(
            [
                program("backhaul-hub"),
                "add-device",
                device,
                "--dir",
                str(hub.directory),
                *(["--link-mode", link_mode] if link_mode else []),
                *(["--per-node"] if nodes else []),
                *(word for node in nodes for word in ("--node", node)),
            ]
        )
        if link_port is not None:
            links = {hub.leaf_port: link_port}
        rig = cls.of(hub, device, directory, links=links)
        await rig.enrol("--port", str(rig.client_port), "--state-dir", str(directory), "--open")
        return rig

    @classmethod
    def of(
        cls,
        hub: HubRig,
        device: str,
        directory: Path,
        *,
        links: Mapping[int, int] | None = None,
    ) -> Self:
        """Return a vehicle whose files are yet to be made in a directory."""
        leaf_conf, agent_toml = directory / "leaf.conf", directory / "agent.toml"
        return cls(
            device=device,
            client_port=free_port(),
            leaf=Part(
                f"{device} leaf",
                [program("nats-server"), "-c", str(leaf_conf)],
                directory / "leaf.log",
            ),
            agent=Part(
                f"{device} agent",
                [program("backhaul-agent"), "run", "--config", str(agent_toml)],
                directory / "agent.log",
            ),
            agent_toml=agent_toml,
            hub=hub,
            links=links or {},
        )

    async def enrol(self, *words: str) -> None:
        """Bring the hub's document to the vehicle, and have the real command make its files of it."""
        made = self.hub.directory / "devices" / self.device / "identity.json"
        text = made.read_text()
        for port, link_port in self.links.items():
            text = re.sub(rf"127\.0\.0\.1:{port}\b", f"127.0.0.1:{link_port}", text)
        directory = self.agent_toml.parent
        document = directory / "identity.json"
        write_private(document, text)
        command = ["enrol", "--file", str(document), "--dir", str(directory)]
        await self.hub.run([program("backhaul-agent"), *command, *words])

    @property
    def url(self) -> str:
        """Where local programs on this vehicle connect, without a key."""
        return f"nats://127.0.0.1:{self.client_port}"

    def options(self) -> dict[str, Any]:
        """Return the arguments for nats-py's `connect` to log in as the agent does."""
        seed = self.agent_toml.with_name("agent.nk").read_text().strip()
        return {"servers": self.url, "nkeys_seed_str": seed}

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Client]:
        """Connect to the leaf as its agent does: with streams, and all that programs do not see."""
        client = await connect(**self.options())
        try:
            yield client
        finally:
            await client.close()

    async def start(self) -> None:
        """Start leaf and agent, and wait until the agent takes readings."""
        await self.leaf.start()
        await self.leaf.wait_listening(self.client_port)
        await self.start_agent()

    async def start_agent(self) -> None:
        """Start the agent and wait until it answers."""
        await self.agent.start()
        await self.wait_agent()

    async def wait_agent(self, timeout_s: float = 120.0) -> None:
        """Wait until the agent answers on its status subject.

        Raises:
            RigError: it did not in time.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        client = await connect(**self.options())
        try:
            while asyncio.get_running_loop().time() < deadline:
                self.agent.assert_alive()
                with contextlib.suppress(NatsError):
                    await client.request("agent.status", b"", timeout=5)
                    return
                await asyncio.sleep(0.05)
        finally:
            await client.close()
        raise RigError(f"{self.agent.name} does not answer; see {self.agent.log}")

    async def stop(self) -> None:
        """Stop agent, then leaf."""
        await self.agent.stop()
        await self.leaf.stop()


async def wait_for_log(part: Part, text: str, offset: int = 0, timeout_s: float = 120.0) -> None:
    """Wait until a part's log holds `text` after byte `offset`.

    Raises:
        RigError: it did not come in time, or the process ended.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while asyncio.get_running_loop().time() < deadline:
        part.assert_alive()
        if text.encode() in part.logged(offset):
            return
        await asyncio.sleep(0.02)
    raise RigError(f"{part.name} never logged {text!r}; see {part.log}")
