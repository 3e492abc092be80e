"""With real servers: the twin's streams on a real server: as declared, as stock clients know them, brought in line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_hub.errors import JetStreamError, LimitsLoweredError, StreamConflictError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.streams.twin_streams import device_prefix
from tests.hub.made_hub import GIB, make_hub
from tests.hub.twin_configs import ALL_FIVE, declared, edit

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def reconcile_all(api: JetStreamApi, config: HubConfig) -> list[str]:
    return [did for each in declared_streams(config) for did in await reconcile(api, each)]


async def test_all_five_are_made_once_and_read_back_as_declared(
    client: Client, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, shards=2)
    api = JetStreamApi(client)
    small = [each | {"max_bytes": 64 << 20} for each in declared_streams(config)]
    made = [did for each in small for did in await reconcile(api, each)]
    assert set(made) >= {f"create {name}" for name in ALL_FIVE}
    assert [did for each in small for did in await reconcile(api, each)] == []


async def test_the_events_of_an_older_hub_take_alerts_from_now_on(
    client: Client, tmp_path: Path
) -> None:
    events = declared(make_hub(tmp_path, free=8 * GIB), "TWIN_EVENTS")
    older = {name: value for name, value in events.items() if name != "subjects"}
    api = JetStreamApi(client)
    for name in ("UP_00", "TWIN_EVENTS"):
        small = {"name": name, "subjects": ["up.>"], "allow_direct": True}
        await reconcile(api, older if name == "TWIN_EVENTS" else small)
    created = (await api.request("STREAM.INFO.TWIN_EVENTS"))["created"]
    [change] = await reconcile(api, events)
    assert change.startswith("update TWIN_EVENTS: subjects lacks")
    ack = await api.publish("fleet.prod.veh.VID-001.evt.alert.hot.raised.a", b"{}")
    assert ack["stream"] == "TWIN_EVENTS"
    assert await reconcile(api, events) == []
    assert (await api.request("STREAM.INFO.TWIN_EVENTS"))["created"] == created


async def test_stock_clients_take_the_bucket_and_the_store_for_their_own(
    client: Client, tmp_path: Path
) -> None:
    await reconcile_all(JetStreamApi(client), make_hub(tmp_path, free=8 * GIB))
    js = client.jetstream()
    shadow = await js.key_value("TWIN_SHADOW")
    key = f"{device_prefix('prod', 'VID-001')}.desired.gateway.mode"
    for number in range(7):
        await shadow.put(key, str(number).encode())
    assert [entry.value for entry in await shadow.history(key)] == [b"2", b"3", b"4", b"5", b"6"]
    await shadow.delete(key)
    status = await shadow.status()
    assert status.history == 5
    blobs = await js.object_store("TWIN_BLOBS")
    await blobs.put("image", bytes(300_000))
    assert (await blobs.get("image")).data == bytes(300_000)
    await blobs.delete("image")


async def test_the_streams_differ_from_a_stock_clients_in_their_limits_alone(
    client: Client, tmp_path: Path
) -> None:
    """What nats-py makes of the same names is brought in line, not refused."""
    js, api = client.jetstream(), JetStreamApi(client)
    await js.create_key_value(bucket="TWIN_SHADOW", history=5)
    await js.create_object_store("TWIN_BLOBS")
    config = make_hub(tmp_path, free=8 * GIB)
    for name, differs in (("KV_TWIN_SHADOW", {"allow_direct"}), ("OBJ_TWIN_BLOBS", set())):
        info = await api.stream_info(name)
        assert info is not None
        stream = declared(config, name)
        found = {key for key, wanted in stream.items() if info["config"].get(key) != wanted}
        assert found == {"max_bytes"} | differs
        await reconcile(api, stream, lower_limits=True)


async def test_what_the_disk_cannot_hold_is_refused_with_what_to_do(
    client: Client, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, free=1 << 50)
    huge = declared(config, "TWIN_EVENTS") | {"max_bytes": 1 << 60}
    with pytest.raises(JetStreamError, match="insufficient storage") as caught:
        await reconcile(JetStreamApi(client), huge)
    assert "hub.toml" in caught.value.hint


async def test_replicas_without_a_cluster_are_refused_with_what_to_do(
    client: Client, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, free=8 * GIB)
    with pytest.raises(JetStreamError, match="replicas > 1 not supported") as caught:
        await reconcile(JetStreamApi(client), declared(config, "TWIN_CMD") | {"num_replicas": 3})
    assert "cluster" in caught.value.hint


async def test_subjects_that_another_stream_takes_are_named_as_the_cause(
    client: Client, tmp_path: Path
) -> None:
    api = JetStreamApi(client)
    await api.request("STREAM.CREATE.MINE", {"name": "MINE", "subjects": ["fleet.>"]})
    with pytest.raises(JetStreamError, match="overlap") as caught:
        await reconcile(api, declared(make_hub(tmp_path, free=8 * GIB), "TWIN_STATE"))
    assert "[twin] env" in caught.value.hint


async def test_a_queue_that_is_none_is_refused_with_every_difference(
    client: Client, tmp_path: Path
) -> None:
    api = JetStreamApi(client)
    stream = {"name": "TWIN_CMD", "subjects": ["fleet.prod.veh.*.cmd.>", "x"], "storage": "memory"}
    await api.request("STREAM.CREATE.TWIN_CMD", stream)
    with pytest.raises(StreamConflictError) as caught:
        await reconcile(api, declared(make_hub(tmp_path, free=8 * GIB), "TWIN_CMD"))
    assert caught.value.differences == [
        "storage is 'memory', wanted 'file'",
        "retention is 'limits', wanted 'workqueue'",
        "subjects has 'x', not wanted",
    ]
    assert str(caught.value).count("\n  ") == 3, "one difference a line"


async def test_history_that_is_shortened_counts_as_a_limit_lowered(
    client: Client, tmp_path: Path
) -> None:
    api = JetStreamApi(client)
    shadow = declared(make_hub(tmp_path, free=8 * GIB), "KV_TWIN_SHADOW")
    await reconcile(api, shadow | {"max_msgs_per_subject": 9})
    with pytest.raises(LimitsLoweredError, match="max_msgs_per_subject is 9, wanted 5"):
        await reconcile(api, shadow)


async def test_check_says_what_would_be_done_and_does_nothing(
    client: Client, nats_server: NatsServer, tmp_path: Path
) -> None:
    config = make_hub(tmp_path / "hub", port=nats_server.port, free=8 * GIB)
    api = JetStreamApi(client)
    command = ["up", "--check", "--dir", str(tmp_path / "hub")]

    async def check() -> tuple[int, list[str]]:
        found = await asyncio.to_thread(CliRunner().invoke, cli, command, catch_exceptions=False)
        return found.exit_code, found.output.splitlines()

    status, said = await check()
    assert (status, said) == (1, [f"create {each['name']}" for each in declared_streams(config)])
    assert await api.stream_info("TWIN_STATE") is None

    await reconcile_all(api, config)
    assert await check() == (0, ["all streams are as declared"])

    edit(tmp_path / "hub", "age_days_max = 30", "age_days_max = 31")
    edit(tmp_path / "hub", 'env = "prod"', 'env = "lab"')
    status, said = await check()
    assert status == 1
    assert (
        said[0] == f"update UP_00: max_age is {30 * 86400}000000000, wanted {31 * 86400}000000000"
    )
    assert "refuse: stream TWIN_STATE exists, and cannot be changed in place:" in said
    assert "  subjects has 'fleet.prod.veh.*.state.>', not wanted" in "\n".join(said)
