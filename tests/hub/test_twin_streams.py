"""The twin's streams on a real server: as declared, as stock clients know them, brought in line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_hub.config import TWIN_BYTES_MAX, load
from backhaul_hub.errors import JetStreamError, LimitsLoweredError, StreamConflictError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.disk_shares import store_bytes_max, twin_bytes_max
from backhaul_hub.streams.streams import declared_streams, planned, reconcile
from backhaul_hub.streams.twin_streams import device_prefix
from tests.hub.made_hub import GIB, make_hub

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig
    from backhaul_hub.nats.jetstream import Json
    from tests.support.nats_server import NatsServer

SECOND_NS = 10**9
ALL_FIVE = ("TWIN_STATE", "TWIN_EVENTS", "TWIN_CMD", "KV_TWIN_SHADOW", "OBJ_TWIN_BLOBS")


def edit(directory: Path, old: str, new: str) -> HubConfig:
    path = directory / "hub.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return load(directory)


def declared(config: HubConfig, name: str) -> Json:
    return next(stream for stream in declared_streams(config) if stream["name"] == name)


async def reconcile_all(api: JetStreamApi, config: HubConfig) -> list[str]:
    return [did for each in declared_streams(config) for did in await reconcile(api, each)]


def test_the_limits_are_the_ones_that_were_asked_for(tmp_path: Path) -> None:
    config = make_hub(tmp_path)
    state, events, commands, shadow, blobs = (declared(config, name) for name in ALL_FIVE)
    assert state["subjects"] == ["fleet.prod.veh.*.state.>"]
    assert (state["max_age"], state["max_bytes"]) == (3600 * SECOND_NS, 10 * GIB)
    assert (state["storage"], state["discard"], state["retention"]) == ("file", "old", "limits")
    assert state["allow_rollup_hdrs"]
    assert (events["max_age"], events["max_bytes"]) == (90 * 86_400 * SECOND_NS, 100 * GIB)
    assert (commands["retention"], commands["max_age"]) == ("workqueue", 300 * SECOND_NS)
    assert shadow["max_msgs_per_subject"] == 5
    assert blobs["subjects"] == ["$O.TWIN_BLOBS.C.>", "$O.TWIN_BLOBS.M.>"]


def test_env_and_replicas_are_said_in_one_place(tmp_path: Path) -> None:
    make_hub(tmp_path, env="lab", shards=2)
    config = edit(tmp_path, "replicas = 1", "replicas = 3")
    assert {stream["num_replicas"] for stream in declared_streams(config)} == {3}
    assert declared(config, "TWIN_CMD")["subjects"] == ["fleet.lab.veh.*.cmd.>"]
    sources = declared(config, "TWIN_EVENTS")["sources"]
    assert [source["name"] for source in sources] == ["UP_00", "UP_01"]
    assert "fleet.lab.veh." in sources[1]["subject_transforms"][0]["dest"]
    assert device_prefix("lab", "VID-001") == "fleet.lab.veh.VID-001"


def test_a_small_disk_gets_smaller_limits_that_fit_it(tmp_path: Path) -> None:
    config = make_hub(tmp_path, free=40 * GIB)
    sizes = [getattr(config.twin, name) for name in TWIN_BYTES_MAX]
    others = config.up.bytes_max + config.down.bytes_max + config.quarantine.bytes_max
    assert 15 * GIB < sum(sizes) < 30 * GIB - others
    assert config.twin.events_bytes_max == max(sizes)
    # The server is told the same total, for good.
    assert f"max_file_store: {30 * GIB}\n" in (tmp_path / "hub.conf").read_text()


def test_a_disk_of_any_size_gets_limits_that_can_be_declared() -> None:
    for free in (0, 1, GIB, 5 * GIB, 200 * GIB, 1 << 50):
        sizes = twin_bytes_max(store_bytes_max(free) - 4 * GIB)
        assert all(16 << 20 <= size <= TWIN_BYTES_MAX[name] for name, size in sizes.items())


def test_an_env_that_is_no_token_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["init", str(tmp_path / "hub"), "--env", "a.b"])
    assert found.exit_code == 2
    assert "not 'a.b'" in found.output
    assert not (tmp_path / "hub").exists()


def test_a_source_that_would_bring_everything_once_more_is_refused(tmp_path: Path) -> None:
    events = declared(make_hub(tmp_path), "TWIN_EVENTS")
    other = declared(edit(tmp_path, 'env = "prod"', 'env = "lab"'), "TWIN_EVENTS")
    with pytest.raises(StreamConflictError, match=r"sources has .*fleet\.prod.*, not wanted"):
        planned(other, events)
    more = declared(edit(tmp_path, 'env = "lab"\n', 'env = "prod"\n'), "TWIN_EVENTS")
    more["sources"] = [*more["sources"], more["sources"][0] | {"name": "UP_01"}]
    assert len(planned(more, events)) == 1, "another shard may join"


@pytest.mark.nats
async def test_all_five_are_made_once_and_read_back_as_declared(
    client: Client, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, shards=2)
    api = JetStreamApi(client)
    small = [each | {"max_bytes": 64 << 20} for each in declared_streams(config)]
    made = [did for each in small for did in await reconcile(api, each)]
    assert set(made) >= {f"create {name}" for name in ALL_FIVE}
    assert [did for each in small for did in await reconcile(api, each)] == []


@pytest.mark.nats
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


@pytest.mark.nats
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


@pytest.mark.nats
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


@pytest.mark.nats
async def test_what_the_disk_cannot_hold_is_refused_with_what_to_do(
    client: Client, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, free=1 << 50)
    huge = declared(config, "TWIN_EVENTS") | {"max_bytes": 1 << 60}
    with pytest.raises(JetStreamError, match="insufficient storage") as caught:
        await reconcile(JetStreamApi(client), huge)
    assert "hub.toml" in caught.value.hint


@pytest.mark.nats
async def test_replicas_without_a_cluster_are_refused_with_what_to_do(
    client: Client, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, free=8 * GIB)
    with pytest.raises(JetStreamError, match="replicas > 1 not supported") as caught:
        await reconcile(JetStreamApi(client), declared(config, "TWIN_CMD") | {"num_replicas": 3})
    assert "cluster" in caught.value.hint


@pytest.mark.nats
async def test_subjects_that_another_stream_takes_are_named_as_the_cause(
    client: Client, tmp_path: Path
) -> None:
    api = JetStreamApi(client)
    await api.request("STREAM.CREATE.MINE", {"name": "MINE", "subjects": ["fleet.>"]})
    with pytest.raises(JetStreamError, match="overlap") as caught:
        await reconcile(api, declared(make_hub(tmp_path, free=8 * GIB), "TWIN_STATE"))
    assert "[twin] env" in caught.value.hint


@pytest.mark.nats
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


@pytest.mark.nats
async def test_history_that_is_shortened_counts_as_a_limit_lowered(
    client: Client, tmp_path: Path
) -> None:
    api = JetStreamApi(client)
    shadow = declared(make_hub(tmp_path, free=8 * GIB), "KV_TWIN_SHADOW")
    await reconcile(api, shadow | {"max_msgs_per_subject": 9})
    with pytest.raises(LimitsLoweredError, match="max_msgs_per_subject is 9, wanted 5"):
        await reconcile(api, shadow)


@pytest.mark.nats
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
