"""Measure how many words a second the control plane can tell vehicles, and the processor time of one.

10,000 vehicles' lanes go on by a message, again and again, and the notifier writes the watermark of each into a DOWN of a real
server: once with a publish each, as it was before batches, and once in atomic batches.
The words beside DOWN are counted, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nats.aio.client import Client

from backhaul_codec.wire.envelope import HASH_BYTES
from backhaul_hub.continuity.former_epochs import Place
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device
from backhaul_hub.links.speaker import Speaker
from backhaul_hub.nats.jetstream import JetStreamApi, Publication
from backhaul_hub.uplink.notify import WatermarkNotifier
from backhaul_hub.uplink.standing_requests import StandingRequest
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_least, at_most, report
from tests.support.nats_server import NatsServer
from tests.support.rig import patient
from tests.support.rig.vehicle import cpu_s

_VEHICLES = 10_000
_WORDS_S, _CORES = 10_000.0, 0.3
_POLL_S = 0.01
_TIMEOUT_S = 300.0


class OneByOne(JetStreamApi):
    """Publishes each message alone, and waits for its answer."""

    async def publish_all(
        self,
        messages: Sequence[Publication],
        *,
        taken: Callable[[Sequence[Publication]], None] = lambda _: None,
    ) -> None:
        """Store messages as `JetStreamApi.publish_all`, but for batches."""
        for subject, body in messages:
            await self.publish(subject, body)
            taken([(subject, body)])


class _Told(NamedTuple):
    """The words of one way, in seconds."""

    words: int
    elapsed_s: float
    used_s: float
    server_s: float

    def figures(self, name: str, *, aims: bool) -> list[Figure]:
        rate = self.words / self.elapsed_s
        cores = self.used_s / self.words * _WORDS_S
        return [
            Figure(f"{name}: told", rate, "words/s", at_least(_WORDS_S) if aims else None),
            Figure(f"{name}: control plane", self.used_s / self.words * 1e6, "us/word"),
            Figure(
                f"{name}: of {_WORDS_S:,.0f} a second",
                *(cores, "cores", at_most(_CORES) if aims else None),
            ),
            Figure(f"{name}: server", self.server_s / self.words * 1e6, "us/word"),
        ]


def run(*, quick: bool) -> dict[str, object]:
    """Tell the same words each way, print the table, and return it."""
    with scratch.directory("hub_telling") as directory:
        figures = asyncio.run(_measure(directory, 1 if quick else 3))
    return report(f"hub_telling: a watermark of each of {_VEHICLES:,} vehicles", figures)


async def _measure(directory: Path, rounds: int) -> list[Figure]:
    server = NatsServer(directory / "server")
    server.start()
    try:
        client = await patient.connect(server.url)
        api, one_by_one = JetStreamApi(client), OneByOne(client)
        down = {"name": "DOWN_00", "subjects": ["in.>"], "max_msgs_per_subject": 1}
        await api.request("STREAM.CREATE.DOWN_00", down | {"allow_atomic": True})
        ways = {"one publish each": one_by_one, "batches": api}
        figures: list[Figure] = []
        for name, way in ways.items():
            told = await _tell(client, way, server.pid, rounds)
            figures += told.figures(name, aims=way is not one_by_one)
        await client.close()
    finally:
        server.stop()
    return figures


async def _tell(client: Client, api: JetStreamApi, server: int, rounds: int) -> _Told:
    clock, continuity = SystemClock(), Continuity()
    devices = {
        id_: Device(id_, "token", "key", 0) for id_ in (f"VID-{at:05}" for at in range(_VEHICLES))
    }
    speaker = Speaker(clock, devices.get)
    speaker.start(client, api)

    async def nothing_stands() -> dict[Place, StandingRequest]:
        return {}

    notifier = WatermarkNotifier(
        *(api, continuity, clock),
        devices=devices.keys,
        links={},
        lags={},
        settled=lambda: True,
        answerer=lambda _: None,
        standing=nothing_stands,
    )
    # The first words are not counted: lanes are new then, and the stream's subjects.
    spent: list[list[float]] = []
    for number in range(rounds + 1):
        for device in devices:
            key = LaneKey(device, "bulk", 7)
            link, own = (at.to_bytes(HASH_BYTES, "big") for at in (number, number + 1))
            continuity.arrived(key, number + 1, 100, number, link=link, own=own)
        began = _now_s(server)
        end = await _last_seq(api) + _VEHICLES
        telling = asyncio.create_task(notifier.tell_watermarks(_POLL_S))
        async with asyncio.timeout(_TIMEOUT_S):
            while await _last_seq(api) < end:
                if telling.done():
                    raise BenchmarkError("the notifier has ended")
                await asyncio.sleep(_POLL_S)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        spent.append([now - then for now, then in zip(_now_s(server), began, strict=True)])
    sums = [sum(each) for each in zip(*spent[1:], strict=True)]
    return _Told(rounds * _VEHICLES, *sums)


def _now_s(server: int) -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), cpu_s(server)


async def _last_seq(api: JetStreamApi) -> int:
    return int((await api.request("STREAM.INFO.DOWN_00"))["state"]["last_seq"])
