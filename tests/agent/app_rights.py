"""The rights of a program on a vehicle, and all that it may not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient

if TYPE_CHECKING:
    from nats.aio.client import Client

    from tests.agent.app_vehicle import Vehicle

RIGHTS = (
    *("--publish", "gps", "--publish", "front left", "--event", "armed", "--read", "battery"),
    *("--set", "pump", "--command", "door.unlock", "--artifacts"),
)


async def settled(client: Client) -> None:
    """Return when the server knows what this client hears, and no more.

    nats-py's flush does not say that: its ping may overtake what it has yet to send.
    """
    await client.request("agent.status", b"", timeout=30)


async def config_of(vehicle: Vehicle) -> ConfigClient:
    """Heads, as the agent itself sees them."""
    key = str(vehicle.dir / "agent.nk")
    return ConfigClient(await vehicle._stack.enter_async_context(connect(vehicle.url, nkey=key)))


PUBLISH = {
    *("app.gps", "app.gps.lat", "app.battery.soc", "app.other2.x", "app"),
    *("agent.event.armed", "agent.set", "agent.set.other", "agent.node.create", "agent.tree"),
    *(
        "agent.get",
        "agent.get.other",
        "agent.history",
        "agent.history.other",
        "agent.artifact.list",
    ),
    # What the technician's page tells: for the agent's own login.
    *("agent.commands", "agent.events", "agent.waiting"),
    *("agent.changed.gps.lat.%25", "agent.rejected.app.gps", "agent.in.x", "agent.ready"),
    # Streams of the agent, and their API under all its names; flow control and acknowledgements.
    *("f.other", "p.other.x.%25", "e.armed", "r.id1", "n.other.f.other", "c.id1", "s.digest"),
    *("$JS.API.INFO", "$JS.API.STREAM.DELETE.OUT_live", "$JS.VID-001.API.STREAM.NAMES", "$KV.x.y"),
    *("$JS.ACK.OUT_live.tok1.1.1.1.1.0", "$JS.FC.OUT_live.tok1.x", "$O.x.C.y"),
    # The hub, commands, other programs' answers, the server itself.
    *("hubapi.CONSUMER.RESET.DOWN_00.x", "dlv.VID-001.tok1_live", "clk.VID-001", "blob.VID-001"),
    *("cmd.door.unlock", "cmdopen.x", "_INBOX.x", "_R_.x.y", "$SYS.REQ.SERVER.PING", "$SRV.PING"),
}
SUBSCRIBE = {
    *(">", "app.>", "app.other.>", "agent.>", "agent.changed.>", "agent.changed.other.*.*"),
    *("agent.rejected.>", "agent.rejected.app.gps.>", "agent.ready", "agent.status", "agent.in.>"),
    *("cmd.>", "cmd.door.unlock", "cmdopen.>", "f.>", "p.>", "e.>", "$JS.API.>", "$JS.>", "_R_.>"),
    *("dn.>", "in.>", "$SYS.>", "$SRV.>", "hubapi.>"),
}
