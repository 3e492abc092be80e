"""Measure for how long a shard takes nothing in when a vehicle's source is added: to UP itself, and to its relay.

One server, synced now and then only. UP holds messages of a fleet already, and the relay as many of them as it may; the vehicle that
comes was never there. Beside it the price: a message through both streams, in the server's processor time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.streams.streams import RELAY_AGE_NS, RELAY_MESSAGES_MAX
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.nats_server import NatsServer
from tests.support.rig.patient import connect
from tests.support.rig.vehicle import cpu_s

_BODY = bytes(200)
_WAIT_S_MAX = 180.0
_POLL_S = 0.005
_FLUSH_MESSAGES = 5_000


def run(*, quick: bool) -> dict[str, object]:
    """Run it and return the figures."""
    messages = 200_000 if quick else 1_000_000
    with scratch.directory("new-source") as directory:
        figures = asyncio.run(_measure(directory, messages))
    return report("a source is added", figures, messages=messages, body_bytes=len(_BODY))


async def _measure(directory: Path, messages: int) -> list[Figure]:
    server = NatsServer(directory / "hub")
    server.start()
    try:
        client = await connect([server.url])
        try:
            return await _Trial(JetStreamApi(client), server).run(messages)
        finally:
            await client.close()
    finally:
        server.stop()


class _Trial:
    def __init__(self, api: JetStreamApi, server: NatsServer) -> None:
        self._api = api
        self._server = server
        self._clock = SystemClock()

    async def run(self, messages: int) -> list[Figure]:
        await self._make("OUT_fleet", subjects=["fleet.>"], storage="memory")
        await self._make("OUT_new", subjects=["new.>"], storage="memory")
        await self._fill("OUT_fleet", "fleet.f.x", messages)
        await self._make("DIRECT")
        direct_cpu_s = await self._take_in("DIRECT", "DIRECT", messages)
        bounds = {"max_age": RELAY_AGE_NS, "max_msgs": RELAY_MESSAGES_MAX}
        await self._make("RELAY", storage="memory", **bounds)
        await self._make("UP", sources=[{"name": "RELAY"}])
        relayed_cpu_s = await self._take_in("RELAY", "UP", messages)
        direct_s = await self._first_of_another("DIRECT", "DIRECT", messages)
        relayed_s = await self._first_of_another("RELAY", "UP", messages)
        return [
            Figure("UP waits", direct_s, "s", note="grows with what UP holds"),
            Figure("a message of UP", direct_s / messages * 1e6, "us"),
            Figure("the relay waits", relayed_s, "s", at_most(0.5)),
            Figure("processor, UP", direct_cpu_s / messages * 1e6, "us a message"),
            Figure("processor, relay and UP", relayed_cpu_s / messages * 1e6, "us a message"),
        ]

    async def _make(self, name: str, **config: object) -> None:
        common: Json = {"name": name, "subjects": [f"only.{name}"], "storage": "file"}
        await self._api.request(f"STREAM.CREATE.{name}", common | config)

    async def _fill(self, stream: str, subject: str, messages: int) -> None:
        async with asyncio.timeout(_WAIT_S_MAX):
            client = await connect([self._server.url])
            for number in range(messages):
                await client.publish(subject, _BODY)
                if number % _FLUSH_MESSAGES == 0:
                    await client.flush()
            await client.close()
        await self._holds(stream, messages)

    async def _holds(self, stream: str, messages: int) -> None:
        began_s = self._clock.monotonic_s()
        while (await self._info(stream))["state"]["messages"] < messages:
            if self._clock.monotonic_s() - began_s > _WAIT_S_MAX:
                raise BenchmarkError(f"{stream} does not hold {messages} messages in time")
            await asyncio.sleep(_POLL_S)

    async def _info(self, stream: str) -> Json:
        return await self._api.request(f"STREAM.INFO.{stream}", timeout_s=_WAIT_S_MAX)

    async def _source(self, stream: str, *names: str) -> None:
        sources = [
            {"name": name, "subject_transforms": [{"src": ">", "dest": f"up.{name}.>"}]}
            for name in names
        ]
        config = (await self._info(stream))["config"] | {"sources": sources}
        await self._api.request(f"STREAM.UPDATE.{stream}", config, timeout_s=_WAIT_S_MAX)

    async def _take_in(self, sourcing: str, up: str, messages: int) -> float:
        """Have the fleet sourced; return the server's processor time until UP has all of it, in seconds."""
        before_s = cpu_s(self._server.pid)
        await self._source(sourcing, "OUT_fleet")
        await self._holds(up, messages)
        return cpu_s(self._server.pid) - before_s

    async def _first_of_another(self, sourcing: str, up: str, messages: int) -> float:
        """Return how long the stream stands still for a new source, in seconds; its first message comes then."""
        client = await connect([self._server.url])
        await client.publish("new.f.x", _BODY)
        await client.flush()
        await client.close()
        began_s = self._clock.monotonic_s()
        await self._source(sourcing, "OUT_fleet", "OUT_new")
        took_s = self._clock.monotonic_s() - began_s
        await self._holds(up, messages + 1)
        return took_s
