"""A hub and a leaf with any number of lanes, set up by hand: no agent, no control plane.

Configurations, streams, durables and sources are the product's own, but for their names; every lane
beyond the product's has the same narrow rights. The link is kept as the control plane keeps it:
sources are there while the leaf is connected.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_agent.config import load
from backhaul_agent.link_config import in_stream_config, out_consumer_config, out_stream_config
from backhaul_hub.down_consumers import durable_source
from backhaul_hub.jetstream import JetStreamApi
from backhaul_hub.lanes import deliver_subject, out_stream
from backhaul_hub.registry import Registry
from backhaul_hub.sources import lane_source
from backhaul_hub.streams import DOWN
from demo.relay import Relay
from demo.rig import DeviceRig, HubRig

from .errors import BenchmarkError
from .vehicle_rig import DEVICE, connection, cpu_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.config import Config
    from backhaul_hub.registry import Device

UP = "UP_00"
SHARED = ("live", "bulk")
_POLL_S = 0.02
_ACTIVE_NS = 2_000_000_000
_OUT_BYTES_MAX = 64 << 20


def node_lanes(count: int) -> list[str]:
    """Return the lanes of so many nodes, as the codec names them."""
    return [f"n_node{number:02d}" for number in range(count)]


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
        """Make all streams and durables at both ends; the link may be down."""
        leaf, hub = JetStreamApi(self.leaf_client), JetStreamApi(self.hub_client)
        for lane in self.lanes:
            like = lane if lane in SHARED else "bulk"
            stream = out_stream_config(config, like) | {"name": out_stream(lane)}
            if lane not in SHARED:
                stream |= {"subjects": [leaf_subject(lane, ">")], "max_bytes": _OUT_BYTES_MAX}
            consumer = out_consumer_config(config, like) | {
                "deliver_subject": deliver_subject(DEVICE, self.login.token, lane)
            }
            await leaf.request(f"STREAM.CREATE.{stream['name']}", stream)
            await leaf.request(
                f"CONSUMER.CREATE.{stream['name']}.{self.login.token}",
                {"stream_name": stream["name"], "action": "", "config": consumer},
            )
        await self._prepare_inward(config, leaf, hub)

    async def _prepare_inward(self, config: Config, leaf: JetStreamApi, hub: JetStreamApi) -> None:
        base = in_stream_config(config)
        assert base is not None
        for stream in self.inward:
            lane = stream.removeprefix("IN").removeprefix("_")
            name, deliver = _down_names(self.login.token, lane)
            durable = durable_source(name=name, deliver_subject=deliver)
            part = f"in.{DEVICE}.n.{lane.removeprefix('n_')}.>" if lane else f"in.{DEVICE}.p.>"
            await hub.request(
                f"CONSUMER.CREATE.{DOWN}.{name}",
                {
                    "stream_name": DOWN,
                    "action": "",
                    "config": durable | {"filter_subject": part},
                },
            )
            source = base["sources"][0] | {
                "consumer": {"name": name, "deliver_subject": deliver},
                "subject_transforms": [{"src": part, "dest": part.removeprefix(f"in.{DEVICE}.")}],
            }
            await leaf.request(
                f"STREAM.CREATE.{stream}", base | {"name": stream, "sources": [source]}
            )

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


def _down_names(token: str, lane: str) -> tuple[str, str]:
    """Return name and deliver subject of the durable on DOWN that a stream sources through."""
    part = f"{token}_{lane}" if lane else token
    return f"{DEVICE}-{part}", f"dn.{DEVICE}.{part}"


@asynccontextmanager
async def lane_rig(
    directory: Path, nodes: int, link: Callable[[str, int], Relay] = Relay
) -> AsyncIterator[LaneRig]:
    """Start both servers with streams for so many nodes, the link down: `relay.heal` brings it up."""
    directory.mkdir()
    lanes = node_lanes(nodes)
    async with AsyncExitStack() as stack:
        hub = HubRig(directory / "hub")
        await hub.init()
        stack.push_async_callback(hub.stop)
        await hub.start()
        relay = await stack.enter_async_context(link("127.0.0.1", hub.leaf_port))
        device = await DeviceRig.add(hub, DEVICE, directory / DEVICE, link_port=relay.port)
        await hub.stop()
        async with await Registry.open(directory / "hub" / "hub.db") as registry:
            login = (await registry.devices())[DEVICE]
        _grant(directory / "hub" / "hub.conf", "OUT_bulk", [f"OUT_{lane}" for lane in lanes])
        devices = directory / "hub" / "devices.conf"
        _grant(devices, "OUT_bulk", [f"OUT_{lane}" for lane in lanes])
        _grant(devices, f"{login.token}_bulk", [f"{login.token}_{lane}" for lane in lanes])
        names = [_down_names(login.token, lane) for lane in ("", *lanes)]
        for known, *more in zip(*names, strict=True):
            _grant(devices, known, more)
        await hub.server.start()
        await hub.server.wait_listening(hub.client_port)
        stack.push_async_callback(device.leaf.stop)
        hub_client = await stack.enter_async_context(connection(hub.url()))
        system = await stack.enter_async_context(connection(hub.url("system")))
        await relay.cut()
        await device.leaf.start()
        await device.leaf.wait_listening(device.client_port)
        leaf_client = await stack.enter_async_context(connection(device.url))
        rig = LaneRig(hub, device, relay, login, hub_client, leaf_client, lanes)
        await rig.prepare(load(Path(device.agent_toml)))
        await system.subscribe("$SYS.ACCOUNT.FLEET.*", cb=rig.on_link)
        yield rig


def _grant(conf: Path, known: str, more: list[str]) -> None:
    """Repeat every line that speaks of one stream or subject, for others."""
    lines = []
    for line in conf.read_text().splitlines():
        lines.append(line)
        if known in line:
            # All stand in lists; a comma ends an entry only in some of them.
            lines += [line.replace(known, name) for name in more]
    conf.write_text("\n".join(lines) + "\n")
