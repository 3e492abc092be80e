"""Who is connected: leaf connects and disconnects, from the hub server's system account."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from .clock import Clock

log = structlog.get_logger(__name__)

LEAFS_INTERVAL_S = 5.0
"""How often the server is asked who is connected."""

_EVENTS = "$SYS.ACCOUNT.FLEET.*"
_LEAFZ = "$SYS.REQ.SERVER.PING.LEAFZ"


@dataclass(slots=True)
class Link:
    """The link of one device, as the hub's server sees it."""

    up: bool = False
    since_ns: int = 0
    """When it came up or went down; ns since the Unix epoch."""
    rtt: str = ""
    answered_ns: int = 0
    """When `rtt` was last seen to change: then at the latest the vehicle has answered a ping."""
    in_bytes: int = 0
    """Bytes received over the present connection, before the link's own compression."""
    out_bytes: int = 0
    last_reason: str = ""
    """Why the last connection ended, in the server's words."""


class Leafs:
    """Keeps `links` up to date and reports every change.

    Events are prompt but can be missed (the control plane was down, its own link to the server
    was cut), so the server's list of leafs is asked for now and then as well.

    Args:
        client: a connection in the system account.
        device_of: tells whose leaf has a name; the name itself is what a leaf says of itself.
        on_connect, on_disconnect: called with the device id.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        device_of: Callable[[str], str | None],
        on_connect: Callable[[str], None],
        on_disconnect: Callable[[str], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._device_of = device_of
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self.links: dict[str, Link] = {}
        self._connection_ids: dict[str, int] = {}

    async def start(self) -> None:
        """Subscribe to the events and take stock. Do this before anything depends on `links`."""
        await self._client.subscribe(_EVENTS, cb=self._on_event)
        await self.refresh()

    async def watch(self, interval_s: float) -> None:
        """Take stock every `interval_s` seconds (event loop's clock), for ever."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.refresh()
            except (NatsError, ValueError) as error:
                log.warning("leafs_unknown", error=str(error))

    async def refresh(self) -> None:
        """Ask the server who is connected, and report what the events did not."""
        answer = await self._client.request(_LEAFZ, b"{}", timeout=5)
        listed: dict[str, dict[str, Any]] = {
            device: leaf
            for leaf in json.loads(answer.data).get("data", {}).get("leafs") or []
            if leaf.get("account") == "FLEET"
            and (device := self._device_of(leaf["name"])) is not None
        }
        for device, leaf in listed.items():
            if self._connection_ids.get(device) != leaf["id"]:
                self._connected(device, leaf["id"])
            link = self.links[device]
            if (rtt := leaf.get("rtt", "")) != link.rtt:
                link.rtt, link.answered_ns = rtt, self._clock.now_ns()
            link.in_bytes = leaf.get("in_bytes", 0)
            link.out_bytes = leaf.get("out_bytes", 0)
        for device in set(self._connection_ids) - set(listed):
            self._disconnected(device, "not in the server's list any more")

    async def _on_event(self, message: Msg) -> None:
        kind = message.subject.rpartition(".")[2]
        try:
            event = json.loads(message.data)
            client = event["client"]
            device, connection_id = client["user"], client["id"]
        except (ValueError, KeyError, TypeError):
            return
        if client.get("kind") != "Leafnode":
            return
        if kind == "CONNECT":
            self._connected(device, connection_id)
        elif kind == "DISCONNECT" and self._connection_ids.get(device) == connection_id:
            # An old connection may be found dead after the new one is up; only the newest counts.
            self._disconnected(device, event.get("reason", ""))

    def _connected(self, device: str, connection_id: int) -> None:
        self._connection_ids[device] = connection_id
        link = self.links.setdefault(device, Link())
        link.up, link.since_ns = True, self._clock.now_ns()
        log.info("leaf_connected", device=device)
        self._on_connect(device)

    def _disconnected(self, device: str, reason: str) -> None:
        self._connection_ids.pop(device, None)
        link = self.links.setdefault(device, Link())
        link.up, link.since_ns, link.last_reason = False, self._clock.now_ns(), reason
        log.info("leaf_disconnected", device=device, reason=reason)
        self._on_disconnect(device)
