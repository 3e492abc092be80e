"""Sparkplug B as a site: a DDATA a second at QoS 1 through an MQTT broker.

The broker is mosquitto where there is one, else the MQTT listener of nats-server: the protocol on the link
is the same. The edge node keeps what it cannot send in memory, as its client library does.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from backhaul_codec import Point
from backhaul_runtime.clock import SYSTEM_CLOCK
from benchmarks.gateway.site import DEVICE, EachSecond, Inbox, Site
from tests.support.rig.parts import Part, program
from tests.support.rig.ports import free_port
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.sparkplug import Metric, Payload, birth, decode, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

_KEEPALIVE_S = 60
_DATA = f"spBv1.0/fleet/DDATA/{DEVICE}/gateway"
_BIRTH = f"spBv1.0/fleet/DBIRTH/{DEVICE}/gateway"
_COMMAND = f"spBv1.0/fleet/DCMD/{DEVICE}/gateway"


def broker_program() -> str | None:
    """Return the path of mosquitto, if it is installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@asynccontextmanager
async def sparkplug_site(
    directory: Path, *, names: Sequence[tuple[str, str, str]], round_trip_s: float
) -> AsyncIterator[Site]:
    """Start broker, edge node and host; yield the site when a reading has arrived.

    `names`: node, type and key of each series, of which the birth message tells.
    """
    names = [*names, ("setup", "ready", ""), ("sensor00", "alone", "")]
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(_broker(directory))
        relay = await stack.enter_async_context(
            ShapedRelay("127.0.0.1", port, round_trip_s=round_trip_s)
        )
        inbox = Inbox()
        host = await stack.enter_async_context(
            _client("host", port, [_DATA], partial(_take, inbox, names))
        )
        commands = _Commands(host)
        edge = await stack.enter_async_context(
            _client("edge", relay.port, [_COMMAND], commands.taken)
        )
        node = _EdgeNode(edge, names)
        node.born()
        gathered = EachSecond(node.send)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(tasks.create_task(gathered.run()).cancel)

        async def reading(point: Point) -> float:
            began_s = asyncio.get_running_loop().time()
            await node.send([point])
            await inbox.until(lambda: inbox.account.is_there(point), 60, "a reading")
            return asyncio.get_running_loop().time() - began_s

        site = Site("Sparkplug B", relay, gathered.send, inbox, commands.send, reading=reading)
        await site.ready()
        yield site


class _EdgeNode:
    """Publishes readings by aliases."""

    def __init__(self, client: mqtt.Client, names: Sequence[tuple[str, str, str]]) -> None:
        self._client = client
        self._names = names
        self._aliases = {name: alias for alias, name in enumerate(names)}
        self._seq = 0

    def born(self) -> None:
        """Say which alias is what."""
        names = ["/".join(filter(None, name)) for name in self._names]
        body = encode(birth(names, SYSTEM_CLOCK.now_ns() // 1_000_000))
        self._client.publish(_BIRTH, body, qos=1)

    async def send(self, points: list[Point]) -> None:
        """Publish readings; the client sends them (again) until the broker has them."""
        self._seq = (self._seq + 1) % 256
        metrics = [
            Metric(
                # A Sparkplug value of the kinds that these works have.
                point.value if isinstance(point.value, int | float | str) else str(point.value),
                point.time // 1_000_000,
                self._aliases[point.node, point.type, point.key],
            )
            for point in points
        ]
        payload = Payload(SYSTEM_CLOCK.now_ns() // 1_000_000, self._seq, metrics)
        self._client.publish(_DATA, encode(payload), qos=1)


class _Commands:
    """Publishes commands at the host and notes when the edge node has them."""

    def __init__(self, host: mqtt.Client) -> None:
        self._host = host
        self._taken: asyncio.Future[float] | None = None

    def taken(self, _body: bytes) -> None:
        """Note that a command is there."""
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(asyncio.get_running_loop().time())

    async def send(self) -> float:
        """Send a command; return after how many seconds the edge node has it."""
        loop = asyncio.get_running_loop()
        self._taken, began_s = loop.create_future(), loop.time()
        now_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
        body = encode(Payload(now_ms, 0, [Metric(1, now_ms, name="probe")]))
        self._host.publish(_COMMAND, body, qos=1)
        return await self._taken - began_s


def _take(inbox: Inbox, names: Sequence[tuple[str, str, str]], body: bytes) -> None:
    points = []
    payload = decode(body)
    for metric in payload.metrics:
        assert metric.alias is not None
        node, type_, key = names[metric.alias]
        points.append(Point(node, type_, metric.time_ms * 1_000_000, metric.value, key=key))
    # At QoS 1 a message may come again.
    inbox.take(points, (payload.time_ms, payload.seq))


@asynccontextmanager
async def _broker(directory: Path) -> AsyncIterator[int]:
    port, found = free_port(), broker_program()
    conf = directory / "broker.conf"
    if found is not None:
        conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
        command = [found, "-c", str(conf)]
    else:
        conf.write_text(
            f'server_name: broker\nlisten: "127.0.0.1:{free_port()}"\n'
            f'mqtt {{ listen: "127.0.0.1:{port}" }}\njetstream {{ store_dir: "{directory}" }}\n'
        )
        command = [program("nats-server"), "-c", str(conf)]
    broker = Part("broker", command, directory / "broker.log")
    await broker.start()
    try:
        await broker.wait_listening(port)
        yield port
    finally:
        await broker.stop()


@asynccontextmanager
async def _client(
    name: str, port: int, subjects: Sequence[str], take: Callable[[bytes], None]
) -> AsyncIterator[mqtt.Client]:
    """Connect a client; its thread hands each message to the event loop."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()

    def connected(client: mqtt.Client, *_: Any) -> None:
        client.subscribe([(subject, 1) for subject in subjects])

    def subscribed(*_: Any) -> None:
        loop.call_soon_threadsafe(ready.set)

    def message(_client: mqtt.Client, _data: object, found: mqtt.MQTTMessage) -> None:
        loop.call_soon_threadsafe(take, bytes(found.payload))

    client = mqtt.Client(CallbackAPIVersion.VERSION2, name)
    client.on_connect, client.on_subscribe, client.on_message = connected, subscribed, message
    client.max_queued_messages_set(0)
    client.connect_async("127.0.0.1", port, _KEEPALIVE_S)
    client.loop_start()
    try:
        async with asyncio.timeout(60):
            await ready.wait()
        yield client
    finally:
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)
