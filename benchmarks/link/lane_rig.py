"""A hub and a leaf with any number of lanes, set up by hand: no agent, no control plane.

Configurations, rights, streams, durables and sources are the product's own, those of the nodes as
`add-device --per-node` grants them. The link is kept as the control plane keeps it: sources are there
while the leaf is connected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.config import Config
from backhaul_agent.config_file import load
from backhaul_agent.leaf.streams import (
    in_stream,
    in_stream_config,
    out_consumer_config,
    out_stream_config,
)
from backhaul_codec.kinds import SHARED_LANES
from backhaul_codec.subjects import node_lane
from backhaul_hub.access.keys import read_keys
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.lane_names import out_stream
from backhaul_hub.links.down_consumers import ensure_down_consumers
from backhaul_hub.links.reset_service import ResetService
from backhaul_hub.links.sources import lane_source
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import SystemClock
from benchmarks.errors import BenchmarkError
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.relay import Relay
from tests.support.rig.vehicle import DEVICE, cpu_s

UP = "UP_00"
SHARED = SHARED_LANES
_POLL_S = 0.02
_ACTIVE_NS = 2_000_000_000


def node_names(count: int) -> list[str]:
    """Return the names of so many nodes."""
    return [f"node{number:02d}" for number in range(count)]


def node_lanes(count: int) -> list[str]:
    """Return their lanes, as the codec names them."""
    return [node_lane(node) for node in node_names(count)]


def leaf_subject(lane: str, subject: str) -> str:
    """Return a subject as it is in a lane."""
    return subject if lane in SHARED else f"n.{lane.removeprefix('n_')}.{subject}"


@dataclass(slots=True)
class LaneRig:
    """Both servers, the relay between them, and a connection to each."""

    hub: HubRig
    device: DeviceRig
    relay: Relay
    login: Device
    hub_client: Client
    leaf_client: Client
    nodes: list[str]
    """Lanes of nodes; the device's own are there as well."""
    connects: int = 0

    @property
    def lanes(self) -> list[str]:
        """All lanes up."""
        return [*SHARED, *self.nodes]

    @property
    def inward(self) -> list[str]:
        """All streams down."""
        return ["IN", *(f"IN_{lane}" for lane in self.nodes)]

    def used(self) -> tuple[float, float]:
        """Return processor seconds used so far by leaf and hub."""
        return cpu_s(self.device.leaf.pid), cpu_s(self.hub.server.pid)

    async def prepare(self, config: Config) -> None:
        """Make all streams and durables, as agent and control plane do; the link may be down."""
        leaf, hub = JetStreamApi(self.leaf_client), JetStreamApi(self.hub_client)
        for lane in self.lanes:
            await leaf.request(f"STREAM.CREATE.{out_stream(lane)}", out_stream_config(config, lane))
            durable = out_consumer_config(config, lane, self.lanes)
            await leaf.request(
                f"CONSUMER.CREATE.{out_stream(lane)}.{self.login.token}",
                {"stream_name": out_stream(lane), "action": "", "config": durable},
            )
        await ensure_down_consumers(hub, self.login)
        for lane in ("", *self.nodes):
            await leaf.request(f"STREAM.CREATE.{in_stream(lane)}", in_stream_config(config, lane))

    async def on_link(self, message: Msg) -> None:
        """Take in a connect or disconnect of the leaf: sources come and go with it."""
        event = json.loads(message.data)
        if event.get("client", {}).get("kind") != "Leafnode":
            return
        if message.subject.endswith(".CONNECT"):
            self.connects += 1
            await self.source(self.lanes)
        else:
            await self.source([])

    async def source(self, lanes: Iterable[str]) -> None:
        """Have UP source these lanes and no others."""
        api = JetStreamApi(self.hub_client)
        info = await api.request(f"STREAM.INFO.{UP}")
        sources = [lane_source(self.login, lane) for lane in lanes]
        await api.request(f"STREAM.UPDATE.{UP}", info["config"] | {"sources": sources})

    async def live(self, timeout_s: float) -> float:
        """Wait until every source at both ends is heard; return how long that took.

        Raises:
            BenchmarkError: not all were in time.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        heard = 0
        while loop.time() - began_s < timeout_s:
            heard = await self.heard()
            if heard == len(self.lanes) + len(self.inward):
                return loop.time() - began_s
            await asyncio.sleep(_POLL_S)
        raise BenchmarkError(f"{heard} sources are heard after {timeout_s:.0f} s")

    async def heard(self) -> int:
        """Count the sources at both ends that were heard within two seconds."""
        leaf = JetStreamApi(self.leaf_client)
        infos = [await JetStreamApi(self.hub_client).request(f"STREAM.INFO.{UP}")]
        infos += [await leaf.request(f"STREAM.INFO.{stream}") for stream in self.inward]
        sources: list[dict[str, Any]] = [
            source for info in infos for source in info.get("sources") or []
        ]
        return sum(
            0 <= source["active"] < _ACTIVE_NS and not source.get("error") for source in sources
        )


@asynccontextmanager
async def lane_rig(
    directory: Path, nodes: int, link: Callable[[str, int], Relay] = Relay
) -> AsyncIterator[LaneRig]:
    """Start both servers with streams for so many nodes, the link down: `relay.heal` brings it up."""
    directory.mkdir()
    async with AsyncExitStack() as stack:
        hub = HubRig(directory / "hub")
        await hub.init()
        stack.push_async_callback(hub.stop)
        await hub.start()
        relay = await stack.enter_async_context(link("127.0.0.1", hub.leaf_port))
        device = await DeviceRig.add(
            hub, DEVICE, directory / DEVICE, link_port=relay.port, nodes=node_names(nodes)
        )
        await hub.stop()
        async with await Registry.open(directory / "hub" / "hub.db") as registry:
            login = (await read_devices(registry))[DEVICE]
        await hub.server.start()
        await hub.server.wait_listening(hub.client_port)
        stack.push_async_callback(device.leaf.stop)
        hub_client = await stack.enter_async_context(hub.connection())
        await ResetService(hub_client, SystemClock()).listen(hub_client)
        system = await stack.enter_async_context(hub.connection("system"))
        await relay.cut()
        await device.leaf.start()
        await device.leaf.wait_listening(device.client_port)
        leaf_client = await stack.enter_async_context(device.connection())
        rig = LaneRig(hub, device, relay, login, hub_client, leaf_client, node_lanes(nodes))
        await rig.prepare(load(Path(device.agent_toml)))
        fleet = read_keys(hub.directory).account("FLEET").public
        await system.subscribe(f"$SYS.ACCOUNT.{fleet}.*", cb=rig.on_link)
        yield rig
