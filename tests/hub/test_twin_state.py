"""TWIN_STATE: what its messages say, which wait, and what a real server then holds."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, encode_frame
from backhaul_codec.points import JSON
from backhaul_codec.state.merge import HeadKey
from backhaul_hub.continuity.examine import examine
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.sync.newest_readings import BEHIND_FRAMES, Readings
from backhaul_hub.sync.writes import Put
from backhaul_hub.timestamps import rfc3339
from backhaul_hub.twin.state_messages import (
    VALUE_JSON_BYTES_MAX,
    StateKey,
    StateValue,
    Waiting,
    read_state,
    state_body,
    state_subject,
)
from backhaul_hub.twin.state_publisher import StatePublisher
from backhaul_hub.twin.state_recall import look_back, recall
from tests.hub.made_hub import make_hub
from tests.support.hub_sync import DEVICE, START_NS, FakeClock, Hub, Vehicle
from tests.support.rig import patient
from tests.support.strategies import exact, points
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig
    from tests.support.nats_server import NatsServer

SECOND_NS = 10**9
SOC = StateKey(DEVICE, "battery", "soc", "")


def test_a_message_is_the_one_of_the_documentation() -> None:
    value = StateValue(1_777_636_800_250_000_000, 81.2, "synced")
    assert state_subject("prod", SOC) == "fleet.prod.veh.VID-001.state.battery.soc"
    assert json.loads(state_body(SOC, value)) == {
        "vid": "VID-001",
        "timestamp": "2026-05-01T12:00:00.25Z",
        "data": {
            "node": "battery",
            "type": "soc",
            "key": "",
            "value": 81.2,
            "dtype": "float64",
            "time": 1_777_636_800_250_000_000,
            "quality": "synced",
        },
    }


def test_a_name_stays_one_token() -> None:
    key = StateKey(DEVICE, "cell.1", "t °C", "a b")
    assert state_subject("lab", key) == "fleet.lab.veh.VID-001.state.cell%2E1.t%20%C2%B0C.a%20b"


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (10 * SECOND_NS, "1970-01-01T00:00:10Z"),
        ((1 << 63) - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(1 << 63), "1677-09-21T00:12:43.145224192Z"),
    ],
)
def test_a_time_is_exact(time_ns: int, text: str) -> None:
    assert rfc3339(time_ns) == text


@given(points(), st.booleans(), st.sampled_from([None, "synced", "unset"]))
def test_what_was_published_is_read_back(point: Point, deleted: bool, quality: str | None) -> None:
    key = StateKey(DEVICE, point.node, point.type, point.key)
    body = state_body(key, StateValue(point.time, point.value, quality, deleted))
    found = read_state(body)
    assert found is not None
    same, read = found
    assert (same, read.time, read.quality, read.deleted) == (key, point.time, quality, deleted)
    if isinstance(point.value, Opaque) and point.value.dtype == JSON:
        assert state_body(key, read) == body, "the same JSON, perhaps with other spaces"
    else:
        plain = replace(point, tombstone=0, origin="")
        assert exact(replace(plain, value=read.value)) == exact(plain) or point.value != point.value


def test_a_value_beyond_what_a_message_takes_is_left_out_and_said_to_be() -> None:
    body = state_body(SOC, StateValue(START_NS, "\0" * VALUE_JSON_BYTES_MAX))
    data = json.loads(body)["data"]
    assert (data["value"], data["dtype"], data["too_large"]) == (None, "text", True)
    assert len(body) < 1000
    assert read_state(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"vid": "a.b", "data": {"node": "n", "type": "t", "key": "", "value": 1.5, "dtype": "float64", "time": 1}}',
        b'{"vid": "VID-001", "data": {"node": "n", "type": "t", "key": "", "value": "x", "dtype": "float64", "time": 1}}',
        b'{"vid": "VID-001", "data": {"node": "n", "type": "t", "key": "", "value": 1.5, "dtype": "float64", "time": 9223372036854775808}}',
    ],
)
def test_what_somebody_else_put_there_is_no_value(body: bytes) -> None:
    assert read_state(body) is None


TIMES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=30)


@given(TIMES, TIMES, st.integers(0, 3))
def test_of_each_series_the_newest_waits_whatever_fails_meanwhile(
    before: list[tuple[str, int]], after: list[tuple[str, int]], taken: int
) -> None:
    waiting = Waiting()
    newest: dict[StateKey, int] = {}
    on_its_way: list[tuple[StateKey, StateValue]] = []
    for part in (before, after):
        for node, time in part:
            key = SOC._replace(node=node)
            newest[key] = max(newest.get(key, 0), time)
            waiting.add(key, StateValue(time, 1.0))
        on_its_way = on_its_way or waiting.take(taken)
        assert len(on_its_way) <= taken
    waiting.put_back(on_its_way)
    assert {key: value.time for key, value in waiting.take(99)} == newest
    assert len(waiting) == 0


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
            config, self.clock, client, JetStreamApi(client), self.hub.core, self.readings
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


@pytest.mark.nats
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


@pytest.mark.nats
async def test_a_backlog_moves_the_state_once(nats_server: NatsServer, tmp_path: Path) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frames(list(range(BEHIND_FRAMES + 10)), "soc", "volts")
        assert seconds(await twin.published(2)) == [BEHIND_FRAMES + 9.0] * 2


@pytest.mark.nats
async def test_a_thousand_series_go_in_a_few_batches(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with a_twin(nats_server, tmp_path) as twin:
        twin.frame(1, *(f"s{number}" for number in range(1003)))
        said = await twin.published(1003)
        assert {each["data"]["type"] for each in said} == {f"s{n}" for n in range(1003)}


@pytest.mark.nats
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


@pytest.mark.nats
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


@pytest.mark.nats
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


@pytest.mark.nats
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


@pytest.mark.nats
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
        await look_back(twin.client, "UP_05", 590, twin.readings)
        twin.tell()
        assert seconds(await twin.published(1)) == [589.0]
