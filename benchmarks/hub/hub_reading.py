"""Measure the processor time that a message of UP costs the control plane, by the messages of a turn.

Vehicles' frames stand in streams of UP, 500 vehicles a stream; the readers take them in as the control
plane does: read, proved, counted, their newest values kept, stored in hub.db. Once as readers did
before: each message through nats-py's own queue, examined alone, and a turn for each stream. Then as they do:
one turn over all streams, taken from the connection as bytes, proved together. The last rows have the fleet's
shape: a few messages each of many streams. Nothing is told anybody.

The benchmark also counts the bytes of hub.db's write-ahead log, both ways: with each lane and block in its row after
each turn, as before, and with the log of turns, as now. The order of the vehicles is another one each round.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from nats.aio.client import Client

from backhaul_codec import Point, encode_frame, hash_of
from backhaul_codec.wire.envelope import NO_LINK, chain
from backhaul_hub.continuity.examine import Find, UnreadableError, examine
from backhaul_hub.continuity.examine_many import examine_many
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_log import LaneFolding
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import ReadQuestion, Stored, read_many
from backhaul_hub.shards import api_subject, up_name
from backhaul_hub.sync.core import HubSync
from backhaul_hub.sync.newest_readings import Readings
from backhaul_hub.uplink.consumer import Consumer
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.intake import Said, UplinkIntake
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.turns import UplinkTurns
from backhaul_runtime.clock import SystemClock
from backhaul_runtime.jetstream import stamp_ns
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.nats_server import NatsServer
from tests.support.rig import patient

VEHICLES, FRAME_POINTS = 500, 25
_STREAMS = 20
_MANY_FRAMES = 4 * VEHICLES
"""In each of the streams that are read together: the first of a lane costs more than those that follow."""
_SERIES = ("soc", "temp", "volts", "amps", "load")
_SECOND_NS = 1_000_000_000
_TIMEOUT_S = 300.0
_FULL = up_name(_STREAMS)
"""The stream that is read alone."""


def run(*, quick: bool) -> dict[str, object]:
    """Read the same messages both ways for each size of a turn, print the table, and return it."""
    frames = 10_000 if quick else 40_000
    with scratch.directory("hub_reading") as directory:
        figures = asyncio.run(_measure(directory, frames))
    return report(
        f"hub_reading: {frames:,} frames of {FRAME_POINTS} points, {VEHICLES} vehicles a stream",
        figures,
    )


async def _measure(directory: Path, frames: int) -> list[Figure]:
    server = NatsServer(directory / "server")
    server.start()
    try:
        client = await patient.connect(server.url)
        await _fill(JetStreamApi(client), frames)
        figures: list[Figure] = []
        for streams, messages in ((1, 512), (1, 64), (1, 8), (_STREAMS, 8)):
            name = f"turn of {streams * messages}"
            name += f", {messages} each of {streams} streams" if streams > 1 else ""
            (before, wal_before), (now, wal) = [
                await _cost(directory, client, frames, streams, messages, together=together)
                for together in (False, True)
            ]
            figures += [
                Figure(f"{name}: before", before, "us/frame"),
                Figure(f"{name}: now", now, "us/frame"),
                Figure(f"{name}: now / before", now / before, "", at_most(1.0)),
                Figure(f"{name}: write-ahead log before", wal_before, "bytes/frame"),
                Figure(f"{name}: write-ahead log now", wal, "bytes/frame"),
            ]
        await client.close()
    finally:
        server.stop()
    return figures


async def _fill(api: JetStreamApi, frames: int) -> None:
    await api.request(
        "STREAM.CREATE.DICT", {"name": "DICT", "subjects": ["dict.>"], "max_msgs_per_subject": 1}
    )
    for number in range(_STREAMS + 1):
        config = {
            "name": up_name(number),
            "subjects": [f"put.{number}.>"],
            "subject_transform": {"src": f"put.{number}.>", "dest": "up.>"},
            "allow_direct": True,
            "allow_atomic": True,
        }
        await api.request(f"STREAM.CREATE.{up_name(number)}", config)
        count = frames if up_name(number) == _FULL else _MANY_FRAMES
        await api.publish_all(list(_frames(number, count)))


def _frames(stream: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield frames as vehicles' agents chain them, one of each vehicle after the other."""
    dice, links = random.Random(stream), dict[str, bytes]()
    noon_ns = SystemClock().now_ns() - 86_400 * _SECOND_NS
    order = list(range(VEHICLES))
    for number in range(count):
        if number % VEHICLES == 0:
            dice.shuffle(order)
        vehicle, seq = order[number % VEHICLES], number // VEHICLES + 1
        device = f"VID-{stream:02}-{vehicle:03}"
        points = [
            Point(
                *("battery", _SERIES[at % len(_SERIES)]),
                noon_ns + (10 * seq + at // 3) * _SECOND_NS,
                round(dice.uniform(0, 100), 1),
            )
            for at in range(FRAME_POINTS)
        ]
        frame = encode_frame(points, epoch=1, seq=1)
        body = chain(frame, epoch=7, seq=seq, link=links.get(device, NO_LINK))
        links[device] = hash_of("f.battery", body)
        yield f"put.{stream}.{device}.f.battery", body


async def _cost(
    directory: Path, client: Client, frames: int, streams: int, messages: int, *, together: bool
) -> tuple[float, float]:
    """Return the processor time of a frame (us), and its bytes in the write-ahead log."""
    clock, api, continuity = SystemClock(), JetStreamApi(client), Continuity()
    path = directory / f"{streams}-{messages}-{together}.db"
    async with await Registry.open(path) as registry:
        await registry.fetch("PRAGMA wal_autocheckpoint = 0")
        dictionaries = Dictionaries(api, registry, clock)
        await dictionaries.begin()
        future = FutureRule(5.0)
        consumers: list[Consumer] = [
            HubSync(clock, future, list, conflicts_max=100),
            Readings(clock, future, listening=False),
        ]
        intake = UplinkIntake(
            *(continuity, registry, dictionaries, consumers),
            examine=examine_many if together else _examine_each,
            folding=LaneFolding() if together else LaneFolding(lanes_min=0, turns=1),
        )
        names = [up_name(each) for each in range(streams)] if streams > 1 else [_FULL]
        readers = [UplinkReader(each, client, api, intake) for each in names]
        read = read_many if together else _read_each
        turns = [
            UplinkTurns(client, intake, some, read_many=read, shard_messages_max=messages)
            for some in ([readers] if together else [[each] for each in readers])
        ]
        used_s = time.process_time()
        tasks = [asyncio.create_task(each.run()) for each in turns]
        async with asyncio.timeout(_TIMEOUT_S):
            while not all(each.caught_up for each in readers):  # noqa: ASYNC110 - nobody says so
                await asyncio.sleep(0.05)
        used_s = time.process_time() - used_s
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        wal = path.with_name(path.name + "-wal").stat().st_size
        counted = sum(state.held.total for state in continuity.lanes.values())
    total = frames if streams == 1 else _MANY_FRAMES * streams
    if counted != total:
        raise BenchmarkError(f"{counted} of {total} frames were read")
    return used_s / total * 1e6, wal / total


def _examine_each(messages: Sequence[tuple[str, bytes]], find: Find) -> Iterator[Said]:
    for subject, body in messages:
        try:
            yield examine(subject, body, find)
        except UnreadableError as error:
            yield error


async def _read_each(
    client: Client, wanted: Sequence[ReadQuestion]
) -> list[list[Stored] | HubError]:
    """Read one stream through nats-py's subscription, message by message."""
    [(stream, seq, count, _)] = wanted
    inbox = client.new_inbox()
    found: list[Stored] = []
    subscription = await client.subscribe(inbox)
    request = json.dumps({"seq": seq, "batch": count, "max_bytes": 16 << 20}).encode()
    await client.publish(api_subject(f"DIRECT.GET.{stream}"), request, reply=inbox)
    while True:
        async with asyncio.timeout(5):
            message = await subscription.next_msg(timeout=None)
        headers = message.headers or {}
        if "Nats-Sequence" not in headers:
            break
        stamp, subject = stamp_ns(headers["Nats-Time-Stamp"]), headers["Nats-Subject"]
        found.append(Stored(int(headers["Nats-Sequence"]), subject, message.data, stamp))
    await subscription.unsubscribe()
    return [found]
