"""The network between the servers of a cluster, and from control planes to them: through relays that can be cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class Cable(Protocol):
    """A connection's way, which is cut and healed: a `Relay` that is open, or toxiproxy's `Link`."""

    @property
    def port(self) -> int:
        """Where one connects."""

    async def cut(self) -> None:
        """End every connection and refuse new ones."""

    async def heal(self) -> None:
        """Let connections through (again)."""


class Network:
    """A cable for each pair of servers and direction, and those of each control plane.

    Args:
        lay: makes a cable to a port on loopback.
    """

    def __init__(self, lay: Callable[[int], Awaitable[Cable]]) -> None:
        self._lay = lay
        self._routes: dict[tuple[str, str], Cable] = {}
        self._controls: dict[str, dict[str, Cable]] = {}

    @property
    def machines(self) -> list[str]:
        """The machines whose control planes have cables of their own."""
        return [*self._controls]

    async def between(self, hub: ClusterRig) -> None:
        """Have servers and control plane connect through cables; their files are there, and none runs."""
        confs = {name: hub.directory / "servers" / name / "hub.conf" for name in NAMES}
        ports = {name: _cluster_port(path.read_text()) for name, path in confs.items()}
        for name, path in confs.items():
            text = path.read_text()
            for other in NAMES:
                if other != name:
                    cable = await self._lay(ports[other])
                    self._routes[name, other] = cable
                    text = _changed(text, f"@127.0.0.1:{ports[other]}", f"@127.0.0.1:{cable.port}")
            # Where servers tell one another that the third is, nobody is: no route goes around the cables.
            nowhere = f'no_advertise: true\n  advertise: "127.0.0.1:{free_port()}"\n  routes'
            path.write_text(_changed(text, "no_advertise: true\n  routes", nowhere))
        await self.of_control(hub, hub.directory / "hub.toml")

    async def of_control(self, hub: ClusterRig, toml: Path, machine: str = "a") -> None:
        """Have a machine's control plane connect through cables of its own."""
        text = toml.read_text()
        before = self._controls.get("a", {})
        made: dict[str, Cable] = {}
        for name, port in hub.client_ports.items():
            made[name] = await self._lay(port)
            # The directory of the second machine is a copy of the first one's.
            there = before[name].port if name in before else port
            text = _changed(text, f"127.0.0.1:{there}", f"127.0.0.1:{made[name].port}")
        self._controls[machine] = made
        toml.write_text(text)

    async def part(self, server: str) -> None:
        """Part a server from the others."""
        for pair, cable in self._routes.items():
            if server in pair:
                await cable.cut()

    async def heal(self, server: str) -> None:
        """Undo that."""
        for pair, cable in self._routes.items():
            if server in pair:
                await cable.heal()

    async def control_sees(self, *servers: str, machine: str = "a") -> None:
        """Have a machine's control plane reach these servers alone."""
        for name, cable in self._controls[machine].items():
            await cable.cut()
            if name in servers:
                await cable.heal()


def _cluster_port(conf: str) -> int:
    found = re.search(r'cluster \{\s+name: hub\s+listen: "127\.0\.0\.1:(\d+)"', conf)
    assert found is not None
    return int(found[1])


def _changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)
