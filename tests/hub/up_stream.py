"""An UP stream without vehicles: what its readers make of it, on a real server."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from backhaul_codec import Point, encode_frame, encode_point
from backhaul_codec.points import JSON, Opaque
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_log import LaneFolding
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.device_words_store import restore
from backhaul_hub.lane_records.lane_rows import read_lanes
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import read_many
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.turns import ReadMany, UplinkTurns
from tests.support.hub_sync import FakeClock
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from backhaul_hub.continuity.lane_state import LaneState
    from backhaul_hub.nats.jetstream import Json
    from tests.support.nats_server import NatsServer

STREAM = "UP_00"
DEVICE = "VID-001"
LANE = LaneKey(DEVICE, "bulk", 7)
AT_ONCE = partial(LaneFolding, 0, 1)
"""Each turn goes into rows: the log of turns stays empty."""


class Up:
    """One stream, and the control plane's reader of it, which may be stopped and started.

    Not the whole control plane: who polls the stream's state here is `poll`.
    """

    def __init__(self, server: NatsServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.continuity = Continuity()
        self.clock = FakeClock()
        self.unreadable: list[str] = []
        """Devices of messages that count as garbage."""
        self.read_many: ReadMany = read_many
        self.folding: Callable[[], LaneFolding] = LaneFolding
        """Of each start: by default the log of turns has all, and no row is put."""

    async def create(self, **config: object) -> None:
        await self.api.request(
            f"STREAM.CREATE.{STREAM}",
            {"name": STREAM, "subjects": ["up.>", "quarantine.>"], "allow_direct": True} | config,
        )
        await self.create_dict()

    async def create_dict(self) -> None:
        """Make the stream of dictionaries."""
        await self.api.request(
            "STREAM.CREATE.DICT",
            {"name": "DICT", "subjects": ["dict.>"], "max_msgs_per_subject": 1},
        )

    async def frames(self, *seqs: int, epoch: int = 7) -> None:
        """Store frames of the bulk lane with these seqs."""
        for seq in seqs:
            body = encode_frame([Point("battery", "soc", seq, 81.5)], epoch=epoch, seq=seq)
            await self.api.publish(f"up.{DEVICE}.f.battery", body)

    async def event(self, kind: str, value: str, *, seq: int, time_ns: int, epoch: int = 7) -> None:
        """Store an event of the live lane."""
        point = Point("agent", kind, time_ns, Opaque(JSON, value.encode()))
        await self.api.publish(f"up.{DEVICE}.e.{kind}", encode_point(point, epoch=epoch, seq=seq))

    async def info(self) -> Json:
        return await self.api.request(f"STREAM.INFO.{STREAM}")

    async def poll(self) -> None:
        """Look at the stream as the control plane does every second."""
        self.reader.note_state(await self.info())

    async def empties(self) -> None:
        """Wait until the stream's limits have taken everything."""
        async with asyncio.timeout(60):
            while (await self.info())["state"]["messages"]:  # noqa: ASYNC110 - nobody says so
                await asyncio.sleep(0.01)

    def state(self, key: LaneKey = LANE) -> LaneState:
        return self.continuity.lanes[key]

    async def read_up_to(self, stream_seq: int) -> None:
        await until(
            lambda: self.reader.position.seq == stream_seq and self.reader.caught_up,
            f"{STREAM} read to {stream_seq}",
        )

    async def settles(self, *held: tuple[int, int], lane: LaneKey = LANE) -> None:
        """Wait until exactly these seqs are held, and that is committed to hub.db."""
        wanted = list(held)
        while True:
            await until(
                lambda: lane in self.continuity.lanes and list(self.state(lane).held) == wanted,
                f"held {wanted}",
            )
            stored = await read_lanes(self._beside)
            if lane in stored and list(stored[lane].held) == wanted:
                return
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[UplinkReader]:
        """Run the reader as a freshly started control plane would."""
        path = self.directory / "hub.db"
        async with (
            await Registry.open(path) as self.registry,
            # The writer's own connection would show what is not committed yet.
            await Registry.open_existing(path) as self._beside,
        ):
            client = await patient.connect(
                self.server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1
            )
            self.api = JetStreamApi(client)
            self.continuity = Continuity()
            self.continuity.restore(await read_lanes(self.registry))
            words = WordBook(self.continuity)
            await restore(self.registry, words)
            self.dictionaries = Dictionaries(self.api, self.registry, self.clock)
            await self.dictionaries.begin()
            intake = UplinkIntake(
                *(self.continuity, self.registry, self.dictionaries),
                words=words,
                folding=self.folding(),
                unreadable=self.unreadable.append,
            )
            self.reader = UplinkReader(STREAM, client, self.api, intake)
            turns = UplinkTurns(client, intake, [self.reader], read_many=self.read_many)
            task = asyncio.create_task(turns.run())
            try:
                yield self.reader
            finally:
                while not task.done():  # nats-py may lose a cancellation
                    task.cancel()
                    await asyncio.wait([task], timeout=1)
                await client.close()

    def copy_store(self) -> Path:
        """Copy the store of a stopped server."""
        assert not self.server.running
        target = self.directory / "copy"
        shutil.copytree(self.server.store, target)
        return target

    def put_back(self, copy: Path) -> None:
        """Put a copy in the place of the store of a stopped server."""
        self.server.wipe()
        shutil.copytree(copy, self.server.store)
