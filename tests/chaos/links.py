"""A vehicle's links to all servers of the hub: it has one radio, so what befalls one befalls all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tests.support.rig.cluster import ClusterRig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.chaos.link import Link, ProxyServer, Toxic
    from tests.support.rig.parts import HubRig


class Links:
    """One link to each server, by the server's port for leafs; as `Link`, for all of them."""

    def __init__(self, links: Mapping[int, Link]) -> None:
        self._links = links

    @classmethod
    async def to(cls, hub: HubRig, proxies: ProxyServer, device: str) -> Self:
        """Make a device's links to a hub of one server or of several."""
        ports = [hub.leaf_port]
        if isinstance(hub, ClusterRig):
            ports = [*hub.leaf_ports.values()]
        return cls({port: await proxies.link(f"{device}-{port}", port) for port in ports})

    @property
    def ports(self) -> dict[int, int]:
        """Where the vehicle's side connects, by the server's port."""
        return {port: link.port for port, link in self._links.items()}

    async def cut(self) -> None:
        """End every connection and refuse new ones."""
        for link in self._links.values():
            await link.cut()

    async def spoil(self, *toxics: Toxic) -> None:
        """Have toxics at work on what flows, from now on; no two of one type."""
        for link in self._links.values():
            await link.spoil(*toxics)

    async def heal(self) -> None:
        """Take all toxics away and let connections through (again)."""
        for link in self._links.values():
            await link.heal()
