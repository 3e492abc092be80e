"""One turn over several shards, on a real server: what one cannot do keeps no other from reading."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, encode_frame
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.lane_records.lane_rows import read_lanes, read_position
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import ReadQuestion, Stored, read_many
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.turns import UplinkTurns, take
from tests.support.hub_sync import FakeClock
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


class Shards:
    """Streams of UP and their readers; stream `number` takes the messages of vehicles `VID-<number>..`."""

    def __init__(self, client: Client, registry: Registry, count: int) -> None:
        self.client = client
        self.api = JetStreamApi(client)
        self.continuity = Continuity()
        self.dictionaries = Dictionaries(self.api, registry, FakeClock())
        self.intake = UplinkIntake(self.continuity, registry, self.dictionaries)
        self.readers = [
            UplinkReader(f"UP_0{number}", client, self.api, self.intake) for number in range(count)
        ]

    async def create(self, number: int) -> None:
        config = {"name": f"UP_0{number}", "subjects": [f"up.VID-{number}.>"], "allow_direct": True}
        await self.api.request(f"STREAM.CREATE.UP_0{number}", config)

    async def frames(self, number: int, *seqs: int) -> None:
        for seq in seqs:
            body = encode_frame([Point("battery", "soc", seq, 81.5)], epoch=7, seq=seq)
            await self.api.publish(f"up.VID-{number}.f.battery", body)

    def held(self, number: int) -> list[tuple[int, int]]:
        state = self.continuity.lanes.get(LaneKey(f"VID-{number}", "bulk", 7))
        return list(state.held) if state else []

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        task = asyncio.create_task(UplinkTurns(self.client, self.intake, self.readers).run())
        try:
            yield
        finally:
            while not task.done():  # nats-py may lose a cancellation
                task.cancel()
                await asyncio.wait([task], timeout=1)


@contextlib.asynccontextmanager
async def shards(server: NatsServer, directory: Path, count: int) -> AsyncIterator[Shards]:
    async with await Registry.open(directory / "hub.db") as registry:
        client = await patient.connect(server.url)
        try:
            yield Shards(client, registry, count)
        finally:
            await client.close()


async def test_a_stream_that_is_not_there_keeps_no_other_from_being_read(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with shards(nats_server, tmp_path, 3) as up:
        for number in (0, 2):
            await up.create(number)
            await up.frames(number, 1, 2, 4)
        async with up.reading():
            await until(lambda: up.held(0) == up.held(2) == [(1, 2), (4, 4)])
            await up.frames(2, 3)
            await until(lambda: up.held(2) == [(1, 4)])
            assert not up.readers[1].caught_up
            await up.create(1)
            await up.frames(1, 1)
            await until(lambda: up.held(1) == [(1, 1)] and up.readers[1].caught_up)


async def test_dictionaries_that_one_shard_cannot_have_keep_no_other_from_being_read(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shards(nats_server, tmp_path, 2) as up:
        for number in (0, 1):
            await up.create(number)
            await up.frames(number, 1)
        refusals, prepare = [HubError("DICT has no leader")], up.dictionaries.prepare

        async def refuse(messages: list[object]) -> None:
            if refusals and messages[0].subject.startswith("up.VID-0"):  # type: ignore[attr-defined]
                raise refusals.pop()
            await prepare(messages)  # type: ignore[arg-type]

        monkeypatch.setattr(up.dictionaries, "prepare", refuse)
        async with up.reading():
            await until(lambda: up.held(1) == [(1, 1)])
            await until(lambda: up.held(0) == [(1, 1)] and not refusals)
        assert up.continuity.lanes[LaneKey("VID-0", "bulk", 7)].repeats == 0


async def test_garbage_that_cannot_be_set_aside_keeps_no_other_shard_from_being_read(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with shards(nats_server, tmp_path, 2) as up:
        for number in (0, 1):
            await up.create(number)
        await up.api.publish("up.VID-0.f.battery", b"garbage")
        await up.frames(1, 1)
        some = []
        for reader in up.readers:
            reader.look_due = False
            found = await read_many(up.client, [reader.wanted(9)])
            assert isinstance(found[0], list)
            some += [(reader, message) for message in found[0]]
        await take(up.intake, some)  # there is no QUARANTINE
        assert up.held(1) == [(1, 1)]
        assert [reader.position.seq for reader in up.readers] == [0, 1]
        assert [reader.look_due for reader in up.readers] == [True, False]


async def test_a_turn_of_several_shards_is_one_transaction(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shards(nats_server, tmp_path, 3) as up:
        written, write = list[list[RowChange]](), up.intake.registry.write

        async def note(changes: list[RowChange]) -> None:
            written.append(changes)
            await write(changes)

        monkeypatch.setattr(up.intake.registry, "write", note)
        some = []
        for number, reader in enumerate(up.readers):
            reader.look_due = False
            for seq in (1, 2):
                body = encode_frame([Point("battery", "soc", seq, 81.5)], epoch=7, seq=seq)
                some.append((reader, Stored(seq, f"up.VID-{number}.f.battery", body, 9)))
        up.readers[1].fail(HubError("it went away meanwhile"))
        await take(up.intake, some)
        assert len(written) == 1
        stored = await read_lanes(up.intake.registry)
        assert {key.device: list(state.held) for key, state in stored.items()} == {
            "VID-0": [(1, 2)],
            "VID-2": [(1, 2)],
        }
        for number, seq in ((0, 2), (1, 0), (2, 2)):
            assert (await read_position(up.intake.registry, f"UP_0{number}")).seq == seq


async def test_each_question_has_its_own_answer(nats_server: NatsServer, tmp_path: Path) -> None:
    async with shards(nats_server, tmp_path, 2) as up:
        await up.create(0)
        await up.frames(0, 1, 2, 3)
        wanted = [
            ReadQuestion("UP_00", 1, 2),
            ReadQuestion("UP_01", 1, 9),
            ReadQuestion("UP_00", 9, 9),
            ReadQuestion("UP_00", 3, 9),
        ]
        first, absent, beyond, last = await read_many(up.client, wanted)
        assert isinstance(first, list)
        assert isinstance(last, list)
        assert [each.seq for each in first] == [1, 2]
        assert isinstance(absent, HubError)
        assert beyond == []
        assert [each.seq for each in last] == [3]
