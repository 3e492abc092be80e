"""Streams on a real server: created, updated in place, or refused with the difference."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.device import Device
from backhaul_hub.errors import (
    HubError,
    JetStreamError,
    LimitsLoweredError,
    StreamConflictError,
)
from backhaul_hub.links.down_consumers import drop_stale_consumers, ensure_down_consumers
from backhaul_hub.links.sources import Place, apply_sources, places_of, sourced
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.streams.streams import (
    quiet_undeclared_shards,
    reconcile,
    stream_names,
)

if TYPE_CHECKING:
    from nats.aio.client import Client


pytestmark = pytest.mark.nats
STREAM = {"name": "S", "subjects": ["s.>"], "storage": "file", "max_age": 10**9}
DAY_NS = 86_400 * 10**9
DEVICE = Device("VID-001", "ab12", "", 0)


async def sourced_by(api: JetStreamApi, stream: str) -> frozenset[Place]:
    return sourced(await api.request(f"STREAM.INFO.{stream}"))


async def test_a_stream_is_created_once_and_updated_in_place(client: Client) -> None:
    api = JetStreamApi(client)
    assert await reconcile(api, STREAM) == ["create S"]
    assert await reconcile(api, STREAM) == []
    await api.publish("s.1", b"kept")
    changes = await reconcile(api, STREAM | {"max_age": 10**10})
    assert changes == ["update S: max_age is 1000000000, wanted 10000000000"]
    info = await api.stream_info("S")
    assert info is not None
    assert info["config"]["max_age"] == 10**10


async def test_where_a_stream_begins_is_said_when_it_is_made_and_never_later(
    client: Client,
) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM)
    await api.publish("s.1", b"kept")
    changes = await reconcile(api, STREAM | {"max_age": 10**10, "first_seq": 2})
    assert len(changes) == 1
    info = await api.stream_info("S")
    assert info is not None
    assert "first_seq" not in info["config"]
    await reconcile(api, STREAM | {"name": "T", "subjects": ["t.>"], "first_seq": 2})
    assert (await api.publish("t.1", b"kept"))["seq"] == 2


async def test_what_cannot_change_in_place_is_refused_and_left(client: Client) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM)
    with pytest.raises(StreamConflictError, match="storage is 'file', wanted 'memory'"):
        await reconcile(api, STREAM | {"storage": "memory"})
    info = await api.stream_info("S")
    assert info is not None
    assert info["config"]["storage"] == "file"


async def test_sources_survive_a_reconcile(client: Client) -> None:
    api = JetStreamApi(client)
    up = STREAM | {"name": "UP_00"}
    await reconcile(api, up)
    await apply_sources(api, "UP_00", {DEVICE.id: DEVICE}, places_of(DEVICE))
    await reconcile(api, up | {"max_age": 10**10})
    assert await sourced_by(api, "UP_00") == set(places_of(DEVICE))
    await apply_sources(api, "UP_00", {DEVICE.id: DEVICE}, [])
    assert await sourced_by(api, "UP_00") == set()


async def test_a_device_gets_its_consumer_once(client: Client) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM | {"name": "DOWN_00", "subjects": ["in.>"]})
    assert await ensure_down_consumers(api, DEVICE) == ["created VID-001-ab12"]
    assert await ensure_down_consumers(api, DEVICE) == []


async def test_a_consumer_that_was_changed_is_brought_in_line(client: Client) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM | {"name": "DOWN_00", "subjects": ["in.>"]})
    await ensure_down_consumers(api, DEVICE)
    info = await api.consumer_info("DOWN_00", "VID-001-ab12")
    assert info is not None
    changed = info["config"] | {"filter_subject": "in.VID-002.>", "max_ack_pending": 7}
    request = {"stream_name": "DOWN_00", "config": changed, "action": "update"}
    await api.request("CONSUMER.CREATE.DOWN_00.VID-001-ab12", request)
    (done,) = await ensure_down_consumers(api, DEVICE)
    assert "filter_subject is 'in.VID-002.>', wanted 'in.VID-001.>'" in done
    assert "max_ack_pending is 7, wanted 64" in done
    assert await ensure_down_consumers(api, DEVICE) == []


async def comes_to_wait(api: JetStreamApi, consumer: str, count: int) -> None:
    """Wait until so many messages wait for a consumer: it hears of each after its acknowledgement."""
    async with asyncio.timeout(60):
        while (await api.request(f"CONSUMER.INFO.DOWN_00.{consumer}"))["num_pending"] != count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_node_that_gets_streams_of_its_own_gets_its_part_of_down_and_gives_it_back(
    client: Client,
) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM | {"name": "DOWN_00", "subjects": ["in.>"], "max_age": 0})
    await ensure_down_consumers(api, DEVICE)
    own = replace(DEVICE, nodes=("battery",))
    changed, created = await ensure_down_consumers(api, own)
    assert changed.startswith("updated VID-001-ab12: filter_subjects is None")
    assert created == "created VID-001-ab12_n_battery"
    assert await ensure_down_consumers(api, own) == []
    for subject in ("p.gps.x.%", "s.digest", "c.1", "n.battery.p.battery.x.%", "n.gps.p.gps.x.%"):
        await api.publish(f"in.VID-001.{subject}", b"1")
    for name, count in (("VID-001-ab12", 3), ("VID-001-ab12_n_battery", 1)):
        await comes_to_wait(api, name, count)

    other = Device("VID-001_n_x", "cd" * 12, "", 0, nodes=("battery",))
    await ensure_down_consumers(api, other)
    assert await drop_stale_consumers(api, [own, other]) == ([], set())
    dropped = ["VID-001-ab12_n_battery"]
    assert await drop_stale_consumers(api, [DEVICE, other]) == (dropped, set())
    # What may be all that is left of a device stays.
    assert await drop_stale_consumers(api, [DEVICE]) == ([], {other.id})
    (done,) = await ensure_down_consumers(api, DEVICE)
    assert "filter_subject is None, wanted 'in.VID-001.>'" in done
    info = await api.request("STREAM.INFO.DOWN_00", {"subjects_filter": "in.VID-001.n.>"})
    assert info["state"]["subjects"] == {"in.VID-001.n.gps.p.gps.x.%": 1}


@pytest.mark.parametrize(
    ("is_now", "wanted", "said"),
    [
        ({"max_age": 9 * DAY_NS}, {"max_age": DAY_NS}, f"max_age is {9 * DAY_NS}, wanted {DAY_NS}"),
        ({"max_age": 0}, {"max_age": DAY_NS}, f"max_age is 0, wanted {DAY_NS}"),
        ({"max_bytes": 9000}, {"max_bytes": 8000}, "max_bytes is 9000, wanted 8000"),
        ({}, {"max_bytes": 8000}, "max_bytes is -1, wanted 8000"),
    ],
)
async def test_limits_are_lowered_only_where_that_is_meant(
    client: Client, is_now: dict[str, int], wanted: dict[str, int], said: str
) -> None:
    api = JetStreamApi(client)
    stream = {"name": "S", "subjects": ["s.>"], "storage": "file"}
    await reconcile(api, stream | is_now)
    with pytest.raises(LimitsLoweredError, match=said) as caught:
        await reconcile(api, stream | wanted)
    assert "--lower-limits" in caught.value.hint
    assert await reconcile(api, stream | wanted, lower_limits=True) == [f"update S: {said}"]
    raised = {key: 2 * limit for key, limit in wanted.items()}
    assert len(await reconcile(api, stream | raised)) == 1


async def test_shards_that_are_no_longer_declared_take_in_nothing(client: Client) -> None:
    api = JetStreamApi(client)
    there = {"UP_00", "RELAY_00", "UP_01", "RELAY_01", "UP_02", "UP_SIDE", "PUSH"}
    for name in sorted(there):
        await reconcile(api, STREAM | {"name": name, "subjects": [f"{name}.>"]})
        if name != "UP_02":
            await apply_sources(api, name, {DEVICE.id: DEVICE}, places_of(DEVICE))
    assert await quiet_undeclared_shards(api, 1) == ["RELAY_01", "UP_01"]
    for quiet in ("RELAY_01", "UP_01"):
        assert await sourced_by(api, quiet) == set()
    for other in ("UP_00", "RELAY_00", "UP_SIDE"):
        assert await sourced_by(api, other) == set(places_of(DEVICE))
    assert await stream_names(api) == there


async def test_reading_by_position(client: Client) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM | {"allow_direct": True, "max_age": 0})
    for number in range(1, 6):
        await api.publish(f"s.{number}", str(number).encode())
    await api.request("STREAM.MSG.DELETE.S", {"seq": 3})
    reader = StoredReader(client, "S")
    first = await reader.read(1, 3)
    assert [(each.seq, each.subject, each.body) for each in first] == [
        (1, "s.1", b"1"),
        (2, "s.2", b"2"),
        (4, "s.4", b"4"),
    ]
    assert [each.seq for each in await reader.read(5, 100)] == [5]
    assert await reader.read(6, 100) == []
    with pytest.raises(HubError, match="NONE: no JetStream behind it"):
        await StoredReader(client, "NONE").read(1, 1)


async def test_a_refused_publish_says_why(client: Client) -> None:
    api = JetStreamApi(client)
    await reconcile(api, STREAM | {"max_age": 0})
    once = {"Nats-Expected-Last-Subject-Sequence": "0"}
    await api.publish("s.x", b"1", once)
    with pytest.raises(JetStreamError, match="wrong last sequence") as caught:
        await api.publish("s.x", b"1", once)
    assert caught.value.err_code == 10071
    with pytest.raises(HubError, match="no JetStream behind t"):
        await api.publish("t", b"1")


async def test_headers_that_a_device_forges_change_nothing(client: Client) -> None:
    """What a device puts on its messages is stored with them, names of the server's included."""
    api = JetStreamApi(client)
    await reconcile(api, STREAM | {"allow_direct": True, "max_age": 0})
    forged = {
        "Status": "204",
        "Nats-Stream": "T",
        "Nats-Subject": "up.VID-002.f.battery",
        "Nats-Sequence": "77",
        "Nats-Time-Stamp": "1999-01-01T00:00:00Z",
        "Nats-Last-Sequence": "9",
        "Description": "EOB",
    }
    await api.publish("s.1", b"1", forged)
    await api.publish("s.2", b"2", {name.lower(): value for name, value in forged.items()})
    await api.publish("s.3", b"3")
    read = await StoredReader(client, "S").read(1, 100)
    assert [(each.seq, each.subject) for each in read] == [(1, "s.1"), (2, "s.2"), (3, "s.3")]
    assert min(each.stored_ns for each in read) > 1_700_000_000 * 10**9
