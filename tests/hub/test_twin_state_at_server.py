"""TWIN_STATE at a real server: the stream holds each newest reading."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec import Point, encode_frame
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.continuity.examine import examine
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.sync.newest_readings import BEHIND_FRAMES, Readings
from backhaul_hub.sync.writes import Put
from backhaul_hub.twin.state_publisher import StatePublisher
from backhaul_hub.twin.state_recall import look_back, recall
from backhaul_hub.uplink.dictionaries import Dictionaries
from tests.hub.made_hub import make_hub
from tests.support.hub_sync import DEVICE, START_NS, FakeClock, Hub, Vehicle
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats

SECOND_NS = 10**9


class Twin:
    """A hub's core, its readings and its publisher; frames are handed over."""

    def __init__(self, config: HubConfig, client: Client) -> None:
        self.clock = FakeClock()
        self.clock.ns += 1000 * SECOND_NS
        self.hub = Hub(self.clock)
        self.vehicle = Vehicle(self.clock)
        self.client = client
        self.readings = Readings(self.clock, FutureRule(5.0), listening=True)
        self.publisher = StatePublisher(
            config, self.clock, JetStreamApi(client), self.hub.core, self.readings
        )
        self.seq = 0

    def frame(self, second: int, *names: str, clock: int = 0, device: str = DEVICE) -> None:
        """Take in a frame whose values are its second, in a turn of its own."""
        self.frames([second], *names, clock=clock, device=device)

    def frames(self, seconds: list[int], *names: str, clock: int = 0, device: str = DEVICE) -> None:
        """Take in several in one turn."""
        for second in seconds:
            self.seq += 1
            points = [
                Point("battery", name, START_NS + second * SECOND_NS, float(second))
                for name in names or ("soc",)
            ]
            body = encode_frame(points, epoch=1, seq=self.seq, clock=clock)
            self.readings.on_message(examine(f"up.{device}.f.battery", body), True)
        self.readings.take_changes()
        self.tell()

    def heads(self) -> None:
        """Hand over what the vehicle has sent of its heads."""
        messages, self.vehicle.up = self.vehicle.up, []
        self.hub.take(messages)
        self.tell()

    def tell(self) -> None:
        fresh, self.readings.fresh = self.readings.fresh, []
        announcements = list(self.hub.core.announcements)
        self.hub.core.announcements.clear()
        self.publisher.tell(announcements, fresh)

    async def published(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many messages of TWIN_STATE in all, and return what they say."""
        js = self.client.jetstream()

        async def enough() -> int:
            messages: int = (await js.stream_info("TWIN_STATE")).state.messages
            return messages

        async with asyncio.timeout(60):
            while await enough() < count:  # noqa: ASYNC110 - nobody says so
                await asyncio.sleep(0.01)
        # One more, and it would come before this is answered.
        await until(lambda: not self.publisher.busy, "everything is published")
        assert await enough() == count
        last = (await js.stream_info("TWIN_STATE")).state.last_seq
        return [
            json.loads((await js.get_msg("TWIN_STATE", seq)).data or b"")
            for seq in range(last - count + 1, last + 1)
        ]


@asynccontextmanager
async def a_twin(server: NatsServer, tmp_path: Path, *, run: bool = True) -> AsyncIterator[Twin]:
    config = make_hub(tmp_path / "hub", free=8 << 30)
    client = await patient.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    try:
        for declared in declared_streams(config):
            await reconcile(JetStreamApi(client), declared)
        twin = Twin(config, client)
        task = asyncio.create_task(twin.publisher.run() if run else asyncio.sleep(0))
        try:
            yield twin
        finally:
            while not task.done():  # nats-py may lose a cancellation
                task.cancel()
                await asyncio.wait([task], timeout=1)
    finally:
        await client.close()


def seconds(said: list[dict[str, Any]]) -> list[float]:
    return [each["data"]["value"] for each in said]


async def test_each_newer_value_is_published_and_no_older_one(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frame(5)
        assert seconds(await twin.published(1)) == [5.0]
        twin.frame(3)
        twin.frame(5)
        twin.frame(6, clock=2)
        said = await twin.published(2)
        assert seconds(said) == [5.0, 6.0]
        assert [each["data"]["quality"] for each in said] == ["synced", "unset"]


async def test_a_backlog_moves_the_state_once(nats_server: NatsServer, tmp_path: Path) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frames(list(range(BEHIND_FRAMES + 10)), "soc", "volts")
        assert seconds(await twin.published(2)) == [BEHIND_FRAMES + 9.0] * 2


async def test_a_thousand_series_go_in_a_few_batches(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frame(1, *(f"s{number}" for number in range(1003)))
        said = await twin.published(1003)
        assert {each["data"]["type"] for each in said} == {f"s{n}" for n in range(1003)}


async def test_points_of_state_count_and_the_hubs_own_do_not(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.vehicle.event("clock", {"quality": "holdover"})
        twin.vehicle.put("battery", "soc", 81.5)
        twin.heads()
        said = await twin.published(1)
        assert said[0]["data"]["quality"] == "holdover"
        twin.frame(-1)
        assert not twin.publisher.busy, "telemetry of the same series, older than the point"
        twin.hub.set(Put(HeadKey("", "battery", "limit", ""), 90.0))
        twin.vehicle.put("battery", "power", 1.0, parent="gateway")
        twin.vehicle.put("battery", "soc", 80.0, tombstone=1)
        twin.heads()
        said = await twin.published(2)
        assert (said[1]["data"]["type"], said[1]["data"]["deleted"]) == ("soc", True)


async def test_a_value_that_the_server_did_not_take_is_published_later(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frame(1)
        await twin.published(1)
        await twin.client.jetstream().delete_stream("TWIN_STATE")
        twin.frame(2, "soc", "volts")
        await until(lambda: twin.publisher.trouble.now != "", "the batch is refused")
        twin.frame(3)
        config = make_hub(tmp_path / "other", free=8 << 30)
        for declared in declared_streams(config):
            await reconcile(JetStreamApi(twin.client), declared)
        said = await twin.published(2)
        assert sorted(seconds(said)) == [2.0, 3.0]
        twin.frame(2, device="VID-002")
        await twin.published(3)


async def test_a_stream_that_was_made_anew_is_filled_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frame(-4000, "old")
        twin.vehicle.put("battery", "mode", "eco")
        twin.heads()
        twin.frame(1)
        await twin.published(3)
        await twin.client.jetstream().purge_stream("TWIN_STATE")
        twin.publisher.lost()
        said = await twin.published(2)
        assert {each["data"]["type"] for each in said} == {"mode", "soc"}, "the last hour alone"


async def test_the_next_control_plane_knows_what_was_published(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frame(7, *(f"s{number}" for number in range(1003)))
        twin.vehicle.put("battery", "mode", "eco")
        twin.heads()
        await twin.published(1004)
        await JetStreamApi(twin.client).publish("fleet.prod.veh.VID-001.state.x.y", b"another's")
        after = Twin(make_hub(tmp_path / "after"), twin.client)
        after.hub.db, after.hub.clock = twin.hub.db, twin.hub.clock
        after.hub.crash()
        await recall(twin.client, after.hub.core.heads, after.readings)
        known = after.readings.of(DEVICE)
        assert len(known) == 1003
        assert {series.type for series in known} == {f"s{number}" for number in range(1003)}
        after.frame(6, "s1")
        assert not after.publisher.busy, "late"


async def test_what_was_read_and_not_published_is_found_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        api = JetStreamApi(twin.client)
        up = {"name": "UP_05", "subjects": ["up.>"], "allow_direct": True}
        await api.request("STREAM.CREATE.UP_05", up)
        await api.publish("up.VID-001.f.battery", b"garbage")
        for second in range(1, 600):
            point = Point("battery", "soc", START_NS + second, float(second))
            body = encode_frame([point], epoch=1, seq=second)
            await api.publish("up.VID-001.f.battery", body)
        async with await Registry.open(tmp_path / "hub.db") as registry:
            dictionaries = Dictionaries(api, registry, twin.clock)
            await look_back(twin.client, "UP_05", 590, twin.readings, dictionaries)
        twin.tell()
        assert seconds(await twin.published(1)) == [589.0]
