"""Links through a real toxiproxy server, driven by toxiproxy-python.

Modelled: cut, half-open, late, narrow, sliced and torn connections, each way. Whole kilobytes a second
are the finest that toxiproxy can say: 20 kbit/s are its 2 (16 kbit/s), 100 are its 12 (96 kbit/s).
NOT modelled: packets lost or corrupted below TCP; and a half-open link that goes on with what it was
carrying: where the toxic `timeout` is taken away, toxiproxy ends the connections that it held.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from toxiproxy import Toxiproxy

from tests.support.rig.parts import Part
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toxiproxy import Proxy

_BUILT = Path(__file__).parents[2] / ".tools" / "toxiproxy-server"


class NoToxiproxyError(Exception):
    """There is no toxiproxy server on this machine."""

    def __init__(self) -> None:
        super().__init__("no toxiproxy server: `make tools` builds one, or says what it lacks")


def server_binary() -> str:
    """Return the path of the server that `make tools` has built, else of one on PATH.

    Raises:
        NoToxiproxyError: there is none.
    """
    found = str(_BUILT) if os.access(_BUILT, os.X_OK) else shutil.which("toxiproxy-server")
    if not found:
        raise NoToxiproxyError
    return found


@dataclass(frozen=True, slots=True)
class Toxic:
    """What spoils a link while it is up, in both directions alike; attributes are toxiproxy's."""

    type: str
    attributes: Mapping[str, int]


HALF_OPEN = Toxic("timeout", {"timeout": 0})
LATE = Toxic("latency", {"latency": 300, "jitter": 250})  # ms
KBITS_20 = Toxic("bandwidth", {"rate": 2})
KBITS_100 = Toxic("bandwidth", {"rate": 12})
SLICED = Toxic("slicer", {"average_size": 40, "size_variation": 30, "delay": 2_000})  # bytes, us
RESET = Toxic("reset_peer", {"timeout": 0})


def torn(after_bytes: int) -> Toxic:
    """End connections after so many more bytes: in the middle of a message, as likely as not."""
    return Toxic("limit_data", {"bytes": after_bytes})


class ProxyServer:
    """The toxiproxy server; an async context manager that always stops it.

    At most one at a time in a process: toxiproxy-python keeps one address for all its objects.
    """

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        arguments = [server_binary(), "-host", "127.0.0.1", "-port", str(self._port)]
        self.part = Part("toxiproxy", arguments, directory / "toxiproxy.log")
        self._api = Toxiproxy()

    async def __aenter__(self) -> Self:
        await self.part.start()
        try:
            await self.part.wait_listening(self._port)
        except BaseException:
            await self.part.stop()
            raise
        self._api.update_api_consumer("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.part.stop()

    async def link(self, name: str, to_port: int) -> Link:
        """Make a link to a port on loopback, whole at first."""
        port = free_port()
        proxy = await asyncio.to_thread(
            self._api.create, f"127.0.0.1:{to_port}", name, f"127.0.0.1:{port}", enabled=True
        )
        return Link(proxy, port)


class Link:
    """One link, and what can go wrong with it, one thing after the other."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.port = port
        """Where the vehicle's side connects; stays the same."""
        self._proxy = proxy

    async def cut(self) -> None:
        """End every connection and refuse new ones."""
        await asyncio.to_thread(self._proxy.disable)

    async def spoil(self, *toxics: Toxic) -> None:
        """Have toxics at work on what flows, from now on; no two of one type."""
        for toxic in toxics:
            for stream in ("upstream", "downstream"):
                await asyncio.to_thread(
                    self._proxy.add_toxic,
                    type=toxic.type,
                    stream=stream,
                    attributes=dict(toxic.attributes),
                )

    async def heal(self) -> None:
        """Take all toxics away and let connections through (again)."""
        for name in await asyncio.to_thread(self._proxy.toxics):
            await asyncio.to_thread(self._proxy.destroy_toxic, name)
        await asyncio.to_thread(self._proxy.enable)
