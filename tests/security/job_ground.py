"""A hub's server and a job's login there, with all names by which it may try to reach more."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError

from backhaul_codec.protocol.credentials import parse_credentials
from backhaul_hub.config import load
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.streams.streams import declared_streams, reconcile, stream_names
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.endpoint import endpoint_from
from tests.support.act_names import ACTS
from tests.support.hub_layout import local_layout
from tests.support.rig.parts import HubRig

from .leaf_client import RawLeaf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client

ALERT = "fleet.prod.veh.VID-001.evt.alert.hot.raised.0af1"
COMMAND = "fleet.prod.veh.VID-001.cmd.cool_down"
DELETE = "$JS.API.STREAM.DELETE.TWIN_EVENTS"
STREAMS = (
    "UP_00",
    "DOWN_00",
    "TWIN_EVENTS",
    "TWIN_CMD",
    "TWIN_STATE",
    "QUARANTINE",
    "KV_TWIN_SHADOW",
    "DICT",
)
VERBS = (
    *("STREAM.INFO.{}", "STREAM.MSG.GET.{}", "DIRECT.GET.{}", "STREAM.NAMES", "STREAM.LIST"),
    *("STREAM.CREATE.{}", "STREAM.UPDATE.{}", "STREAM.DELETE.{}", "STREAM.PURGE.{}"),
    *("STREAM.MSG.DELETE.{}", "STREAM.SNAPSHOT.{}", "STREAM.RESTORE.{}", "INFO", "ACCOUNT.PURGE.x"),
    *("CONSUMER.CREATE.{}.x", "CONSUMER.LIST.{}", "CONSUMER.MSG.NEXT.{}.control"),
    *("CONSUMER.DELETE.{}.control", "CONSUMER.RESET.{}.control", "STREAM.LEADER.STEPDOWN.{}"),
)
READS = ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")
ELSEWHERE = (
    *(
        "in.VID-001.p.lamp.on.%",
        "in.VID-001.c.1",
        "up.VID-001.f.gps",
        "dlv.VID-001.x",
        "dn.VID-001.x",
    ),
    *(
        "hub.sourced-only.UP_00",
        "updeliver.x",
        "upapi.STREAM.NAMES",
        "quarantine.UP_00.1.1",
        "dict.VID-001.0123456789ab",
        "void.x",
    ),
    *("fleet.prod.veh.VID-001.state.a.b", "fleet.prod.veh.VID-001.evt.armed"),
    *(
        "fleet.prod.veh.VID-001.evt.alert",
        "fleet.prod.veh.VID-001.res.1",
        "fleet.prod.veh.VID-001.x",
    ),
    *("fleet.lab.veh.VID-001.evt.alert.a", "fleet.lab.veh.VID-001.cmd.a"),
    *("$KV.TWIN_SHADOW.fleet.prod.veh.VID-001.desired", "$O.TWIN_BLOBS.M.x", "$JS.FC.UP_00.a.b"),
    *("hub.devices", "hub.reload", "hub.set", "hub.commands.deliver", "hub.alerts.deliver"),
    *("history.ask", "hub.history"),
    *(f"hub.{service}" for service in ACTS),
    *("ask.ann.x.get", "up.x.y", "inbox.ann.x", "clk.VID-001", "blob.VID-001", "enrol.x"),
    *(
        "$SYS.REQ.CLAIMS.UPDATE",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.x.CLAIMS.LOOKUP",
        ">",
        "*",
    ),
)


class Hub:
    """A hub's server with its streams, and a message in UP and in DOWN."""

    def __init__(self, rig: HubRig, control: Client) -> None:
        self.rig = rig
        self.control = control
        self.api = JetStreamApi(control)

    async def fill(self) -> None:
        """Make the streams, and put into each what somebody might want."""
        for declared in declared_streams(load(self.rig.directory)):
            await reconcile(self.api, declared)
        await self.api.publish("in.VID-001.p.lamp.on.%", b"lit")
        await self.api.publish("dict.VID-001.0123456789ab", b"names")
        async with self.rig.connection_in("UP") as up:
            await up.request("hub.sourced-only.UP_00", b"seen", timeout=30)

    async def facts(self) -> dict[str, Any]:
        """Return what all streams are and hold, but for what the twin's login may write."""
        found = {}
        for name in sorted(await stream_names(self.api)):
            info = await self.api.request(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
            subjects = info["state"].get("subjects") or {}
            held = {each for each in subjects if ".evt.alert." not in each and ".cmd." not in each}
            found[name] = (info["config"], sorted(held), info["state"]["consumer_count"])
        return found

    def creds(self, user: str) -> str:
        return str(self.rig.directory / "creds" / f"{user}.creds")

    def endpoint(self, user: str) -> Any:
        options = {"servers": self.rig.addresses()[0], "credentials": self.creds(user)}
        return endpoint_from(options)

    async def in_thread(self, user: str, work: Callable[[Connection], Any]) -> Any:
        """Do something over the job's own client."""

        def run() -> Any:
            connection = Connection(self.endpoint(user))
            try:
                return work(connection)
            finally:
                connection.close()

        return await asyncio.to_thread(run)

    async def leaf(self, user: str) -> RawLeaf:
        """Return a hand-written leaf with a job's login."""
        login = parse_credentials((self.rig.directory / "creds" / f"{user}.creds").read_text())
        claims = {"jwt": login.jwt, "name": "job", "domain": "job", "headers": True}
        leaf = RawLeaf("127.0.0.1", self.rig.leaf_port, claims)
        leaf.sign = lambda nonce: {"sig": login.sign(nonce)}
        return await leaf.open()


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Hub]:
    async with AsyncExitStack() as stack:
        rig = HubRig(directory / "hub")
        layout = local_layout(rig.client_port, rig.leaf_port)
        create_hub(rig.directory, layout)
        stack.push_async_callback(rig.stop)
        await rig.server.start()
        await rig.server.wait_listening(rig.client_port)
        control = await stack.enter_async_context(rig.connection())
        hub = Hub(rig, control)
        await hub.fill()
        yield hub


# Of what is answered: a busy machine takes its time.
ANSWER_S_MAX = 30.0


async def quiet(error: Exception) -> None:
    """Hear what the server refuses: that is what is tried here."""


async def answered(
    client: Client, subject: str, body: bytes = b"", wait_s: float = 0.2, **more: Any
) -> dict[str, Any]:
    """Ask; return what is answered, {} where nobody does."""
    with contextlib.suppress(NatsError, ValueError):
        answer = await client.request(subject, body, timeout=wait_s, **more)
        said = json.loads(answer.data or b"{}")
        return said if isinstance(said, dict) else {}
    return {}


def _body(name: str) -> bytes:
    """Return a body with which the API would do what is asked."""
    if ".MSG." in name or "DIRECT" in name:
        return b'{"seq": 1}'
    if "STREAM.CREATE" in name or "STREAM.UPDATE" in name:
        stream = name.rpartition(".")[2]
        return json.dumps({"name": stream, "subjects": [f"x.{stream}"]}).encode()
    return b""


HEADERS = (
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-Expected-Stream": "UP_00"},
    {"Nats-TTL": "1s"},
    {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "in.VID-001.c.1"},
    {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1"},
    {"Nats-Incr": "1"},
)
