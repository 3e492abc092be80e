"""A hub's streams mirrored at another server while it works, switched, cut short, taken back.

Real servers, joined by the real bridge. Not covered here: control plane and vehicles, which are in
tests/integration/test_migrate.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest
from nats.errors import NoRespondersError

from backhaul_hub.bridge import Bridge, render_bridge
from backhaul_hub.clock import SystemClock, utc
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.jetstream import JetStreamApi
from backhaul_hub.migrate import Migration
from backhaul_hub.mirrors import can_be_mirrored, mirror_of
from backhaul_hub.moved import require_here
from backhaul_hub.objects import Objects
from backhaul_hub.registry import Registry
from backhaul_hub.streams import declared_streams, reconcile
from backhaul_hub.tls_files import CA, TLS, make_certificates
from backhaul_hub.tls_text import tls_block
from demo.rig import free_port
from tests.support.nats_server import NatsServer

from .test_backup import FixedClock, content, hub_at, write
from .test_twin_streams import make_hub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_hub.config import HubConfig


class Pair:
    """Two servers of the same domain that take leafs, as those of two hubs are."""

    def __init__(self, directory: Path) -> None:
        self.ports = {"here": free_port(), "there": free_port()}
        self.servers = {
            name: NatsServer(
                directory / name,
                domain="hub",
                extra=f'leafnodes {{ listen: "127.0.0.1:{port}", isolate_leafnode_interest: true }}',
            )
            for name, port in self.ports.items()
        }

    def leaf(self, name: str) -> str:
        return f"nats-leaf://127.0.0.1:{self.ports[name]}"

    def bridge(self, hub: HubConfig, there: Client) -> Bridge:
        leafs = self.leaf("here"), self.leaf("there")
        return Bridge(*leafs, hub.nats.control, Path("none"), there)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    for server in pair.servers.values():
        server.start()
    try:
        yield pair
    finally:
        for server in pair.servers.values():
            server.stop()


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[Client]:
    connection = await nats.connect(pair.servers["here"].url)
    yield connection
    await connection.close()


@pytest.fixture
async def other(pair: Pair) -> AsyncIterator[Client]:
    """A connection to the other server, empty."""
    connection = await nats.connect(pair.servers["there"].url)
    yield connection
    await connection.close()


@pytest.fixture
async def hub(pair: Pair, client: Client, tmp_path: Path) -> HubConfig:
    return await hub_at(client, tmp_path / "hub", pair.servers["here"].port)


@pytest.fixture
def begin(
    pair: Pair, client: Client, other: Client, hub: HubConfig, tmp_path: Path
) -> Callable[[], Migration]:
    """Return what makes a migration as each run of the command has it."""
    directory = tmp_path / "hub"
    return lambda: Migration(
        client, other, pair.bridge(hub, other), hub, FixedClock(), directory, "nats://there"
    )


def test_all_servers_of_a_cluster_are_dialled() -> None:
    text = render_bridge("nats://a:1,nats://b:2", "tls://c:3", '/a "b"/control.creds')
    assert 'urls: ["nats://a:1", "nats://b:2"], account: OLD' in text
    assert 'urls: ["tls://c:3"], account: NEW' in text
    assert text.count(r'credentials: "/a \"b\"/control.creds"') == 2
    assert "tls {" not in text
    text = render_bridge("tls://a:1", "tls://c:3", "creds", "/hub/tls/ca.pem")
    assert text.count('tls { ca_file: "/hub/tls/ca.pem" }') == 2


def test_what_no_mirror_can_be_of_is_known_before() -> None:
    plain = {"name": "A", "retention": "limits", "subjects": ["a"], "deny_delete": True}
    assert can_be_mirrored(plain)
    assert not can_be_mirrored(plain | {"retention": "workqueue"})
    assert not can_be_mirrored(plain | {"mirror": {"name": "B"}})
    mirror = mirror_of(plain)
    assert mirror["mirror"]["name"] == "A"
    assert mirror.keys().isdisjoint({"subjects", "sources", "deny_delete"})


@pytest.mark.nats
async def test_a_hub_moves_while_it_takes_messages_in(
    begin: Callable[[], Migration],
    hub: HubConfig,
    client: Client,
    other: Client,
    tmp_path: Path,
) -> None:
    """What was acknowledged here is there, under its sequence; what comes too late is refused."""
    await write(client, "up.VID-001.f.battery", 9000)
    await write(client, "up.VID-001.e.app.armed", 3)
    await client.request("fleet.prod.veh.VID-001.cmd.lock", b"{}", timeout=5)
    await Objects(client).put("map", io.BytesIO(b"x" * 300_000))
    await Objects(client).put("old", io.BytesIO(b"y" * 300_000))
    store = await client.jetstream().key_value("TWIN_SHADOW")
    for count in range(9):
        await store.put("fleet.prod.veh.VID-001.desired", b"%d" % count)
    # The other hub's `up` has run once: its streams are there, and empty.
    for declared in declared_streams(hub):
        await reconcile(JetStreamApi(other), declared | {"max_bytes": 64 << 20})
    acknowledged: list[int] = []

    async def go_on() -> None:
        with contextlib.suppress(HubError):
            while True:
                answer = await JetStreamApi(client).publish("up.VID-001.f.battery", b"under way")
                acknowledged.append(answer["seq"])

    # No mirror hears of what is deleted: first the object is there, then it is gone here.
    writing = asyncio.create_task(go_on())
    blobs = await begin().run(prepare=True)
    assert blobs["OBJ_TWIN_BLOBS"]["messages"] == 8
    mirrored = (await JetStreamApi(other).request("STREAM.INFO.UP_00"))["created"]
    assert await Objects(client).remove("old")
    states = await begin().run()
    await writing
    assert acknowledged
    last = acknowledged[-1]
    assert states["UP_00"]["last_seq"] == last
    assert await content(other, "UP_00", last) == await content(client, "UP_00", last)
    assert states["TWIN_EVENTS"]["messages"] == 3
    assert states["TWIN_CMD"]["messages"] == 1
    artifact = await Objects(other).info("map")
    assert artifact is not None
    assert b"".join([each async for each in Objects(other).content(artifact)]) == b"x" * 300_000
    assert [each.name for each in await Objects(other).list()] == ["map"]
    there = await other.jetstream().key_value("TWIN_SHADOW")
    shadow = await there.history("fleet.prod.veh.VID-001.desired")
    assert [(each.revision, each.value) for each in shadow] == [
        (seq, b"%d" % (seq - 1)) for seq in range(5, 10)
    ]
    await there.put("fleet.prod.veh.VID-001.desired", b"and on")

    # The streams there are no mirrors any more, and TWIN_EVENTS goes on where it was.
    await other.request("up.VID-001.e.app.armed", b"again", timeout=5)
    api = JetStreamApi(other)
    async with asyncio.timeout(60):
        while (await api.request("STREAM.INFO.TWIN_EVENTS"))["state"]["messages"] < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    made = (await api.request("STREAM.INFO.UP_00"))["created"]
    assert made == mirrored  # and not copied after all
    async with await Registry.open(tmp_path / "hub" / "migrated" / "hub.db") as registry:
        assert (await registry.position("UP_00")).created == made
    down = await api.request("STREAM.INFO.DOWN_00")
    assert down["state"]["first_seq"] == 1_800_000_000 * 10**6
    with pytest.raises(BackupError, match="has moved, to nats://there"):
        require_here(tmp_path / "hub")


@pytest.mark.nats
async def test_a_migration_that_was_cut_short_goes_on_or_is_taken_back(
    begin: Callable[[], Migration], client: Client, other: Client, tmp_path: Path
) -> None:
    await write(client, "up.VID-001.f.battery", 500)
    await write(client, "quarantine.UP_00.1.1", 5)
    here, there = JetStreamApi(client), JetStreamApi(other)
    assert (await begin().run(prepare=True))["UP_00"]["messages"] >= 300
    require_here(tmp_path / "hub")
    await write(client, "up.VID-001.f.battery", 500)  # it works on

    work = begin()

    def cut(item: str, done: int, of: int) -> None:
        if item == "TWIN_EVENTS" and work._move.switched:
            raise HubError("cut")

    work._progress = cut
    with pytest.raises(HubError, match="cut"):
        await work.run()
    up = await there.request("STREAM.INFO.UP_00")
    assert not up["config"].get("mirror")
    with pytest.raises(NoRespondersError):
        await client.request("quarantine.UP_00.1.1", b"too late", timeout=5)
    states = await begin().run()
    assert states["QUARANTINE"]["messages"] == 5
    assert states["UP_00"]["messages"] == 1000
    # Once more: all of it is whole there already, and is kept.
    await begin().run()
    assert (await there.request("STREAM.INFO.UP_00"))["created"] == up["created"]

    with pytest.raises(BackupError, match="no control plane runs at nats://there"):
        await begin().remove()
    await begin().abort()
    assert (await there.request("STREAM.NAMES"))["streams"] is None
    require_here(tmp_path / "hub")
    assert not (tmp_path / "hub" / "migrated").exists()
    # As it was: it takes messages in, and nobody mirrors it.
    await write(client, "up.VID-001.f.battery", 1)
    await write(client, "quarantine.UP_00.1.1", 1)
    assert (await here.request("STREAM.INFO.UP_00"))["state"]["messages"] == 1001
    assert await here.consumer_info("UP_00", "migrate") is None
    with pytest.raises(BackupError, match="no migration"):
        await begin().abort()


@pytest.mark.nats
async def test_a_server_that_holds_something_is_not_moved_to(
    begin: Callable[[], Migration], client: Client, other: Client, tmp_path: Path
) -> None:
    api = JetStreamApi(other)
    await api.request("STREAM.CREATE.UP_00", {"name": "UP_00", "subjects": ["up.>"]})
    await write(other, "up.VID-009.f.battery", 2)
    with pytest.raises(BackupError, match="holds 2 messages in UP_00"):
        await begin().run()
    require_here(tmp_path / "hub")
    work = begin()
    work._there, work._new = client, JetStreamApi(client)
    with pytest.raises(BackupError, match="the server that this hub has already"):
        await work.run()


@pytest.mark.nats
async def test_streams_stay_until_the_other_hub_runs_and_has_all(
    begin: Callable[[], Migration], client: Client, other: Client, tmp_path: Path
) -> None:
    await write(client, "up.VID-001.f.battery", 5)
    await begin().run()

    async def answer(message: Msg) -> None:
        await message.respond(b"{}")

    await other.subscribe("hub.devices", cb=answer)
    await other.flush()
    await JetStreamApi(other).request("STREAM.DELETE.QUARANTINE")
    await write(client, "hub.moved.QUARANTINE", 1)
    with pytest.raises(BackupError, match="QUARANTINE at nats://there has less"):
        await begin().remove()
    await JetStreamApi(client).request("STREAM.DELETE.QUARANTINE")
    assert "UP_00" in await begin().remove()
    assert (await JetStreamApi(client).request("STREAM.NAMES"))["streams"] is None
    with pytest.raises(BackupError, match="has moved"):
        require_here(tmp_path / "hub")


@pytest.mark.nats
async def test_hubs_that_speak_tls_are_joined_by_their_authority(tmp_path: Path) -> None:
    directory = tmp_path / "hub"
    config = make_hub(directory)
    make_certificates(directory, {directory: ["localhost"]}, utc(SystemClock()))
    servers, urls = [], []
    for name in ("here", "there"):
        port = free_port()
        extra = f"leafnodes {{ listen: 'localhost:{port}'\n{tls_block(directory)} }}"
        servers.append(NatsServer(tmp_path / name, domain="hub", extra=extra))
        urls.append(f"nats-leaf://localhost:{port}")
    try:
        for server in servers:
            server.start()
        there = await nats.connect(servers[1].url)
        async with Bridge(urls[0], urls[1], config.nats.control, directory / TLS / CA, there):
            pass
        await there.close()
    finally:
        for server in servers:
            server.stop()


@pytest.mark.nats
async def test_a_leaf_port_that_is_none_is_said(
    pair: Pair, hub: HubConfig, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_hub.bridge._CONNECT_S_MAX", 2.0)
    wrong = f"nats-leaf://127.0.0.1:{free_port()}"
    with pytest.raises(BackupError, match=r"are not joined: .*refused"):
        async with Bridge(pair.leaf("here"), wrong, hub.nats.control, Path("none"), other):
            pytest.fail("there is nobody")
