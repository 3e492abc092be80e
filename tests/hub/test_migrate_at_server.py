"""With real servers: a hub's streams mirrored at another server while it works, switched, cut short, taken back."""

from __future__ import annotations

import asyncio
import contextlib
import io
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from nats.errors import NoRespondersError

from backhaul_hub.access.keys import read_keys
from backhaul_hub.artifacts.object_store import Objects
from backhaul_hub.config import load
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.lane_records.lane_rows import read_position
from backhaul_hub.migrate.bridge import Bridge
from backhaul_hub.migrate.migrate import Migration
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.start_guard import require_here
from backhaul_hub.streams.streams import declared_streams, reconcile, stream_names
from backhaul_hub.tls.files import CA, TLS
from backhaul_hub.tls.setup import TlsChoice
from backhaul_runtime.clock import SystemClock
from tests.hub.backups import FixedClock, content, streams_at, write
from tests.hub.sourced import sourced
from tests.support.hub_layout import local_layout
from tests.support.rig.parts import HubRig
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_hub.config import HubConfig

pytestmark = pytest.mark.nats


class Pair:
    """The servers of two hubs with the same keys."""

    def __init__(self, directory: Path, tls: TlsChoice | None = None) -> None:
        self.rigs = {"here": HubRig(directory / "hub"), "there": HubRig(directory / "other")}
        keys_of = None
        for rig in self.rigs.values():
            layout = local_layout(rig.client_port, rig.leaf_port, tls=tls, keys_of=keys_of)
            create_hub(rig.directory, layout, free=lambda _: 40 << 30)
            # Synced now and then: it is about messages, not about the power.
            conf = rig.directory / "hub.conf"
            conf.write_text(conf.read_text().replace("sync_interval: always", ""))
            keys_of = rig.directory

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for rig in self.rigs.values():
                stack.push_async_callback(rig.stop)
                await rig.server.start()
                await rig.server.wait_listening(rig.client_port)
            yield

    def leaf(self, name: str) -> str:
        return f"nats-leaf://127.0.0.1:{self.rigs[name].leaf_port}"

    def bridge(self, hub: HubConfig, there: Client, to_leaf: str = "") -> Bridge:
        return Bridge(
            self.leaf("here"),
            to_leaf or self.leaf("there"),
            hub.nats.control,
            read_keys(self.rigs["here"].directory),
            SystemClock(),
            self.rigs["here"].directory / TLS / CA,
            there,
        )


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    async with pair.running():
        yield pair


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[Client]:
    connection = await pair.rigs["here"].connect()
    yield connection
    await connection.close()


@pytest.fixture
async def other(pair: Pair) -> AsyncIterator[Client]:
    """A connection to the other server, empty."""
    connection = await pair.rigs["there"].connect()
    yield connection
    await connection.close()


@pytest.fixture
async def up(pair: Pair) -> AsyncIterator[Client]:
    """A connection in account UP, which writes as if vehicles were sourced."""
    async with pair.rigs["here"].connection_in("UP") as connection:
        yield connection


@pytest.fixture
async def other_up(pair: Pair) -> AsyncIterator[Client]:
    async with pair.rigs["there"].connection_in("UP") as connection:
        yield connection


@pytest.fixture
async def hub(pair: Pair, client: Client, tmp_path: Path) -> HubConfig:
    return await streams_at(client, tmp_path / "hub")


@pytest.fixture
def begin(
    pair: Pair, client: Client, other: Client, hub: HubConfig, tmp_path: Path
) -> Callable[[], Migration]:
    """Return what makes a migration as each run of the command has it."""
    directory = tmp_path / "hub"
    return lambda: Migration(
        client, other, pair.bridge(hub, other), hub, FixedClock(), directory, "nats://there"
    )


async def test_a_hub_moves_while_it_takes_messages_in(
    begin: Callable[[], Migration],
    hub: HubConfig,
    client: Client,
    up: Client,
    other: Client,
    other_up: Client,
    tmp_path: Path,
) -> None:
    """What was acknowledged here is there, under its sequence; what comes too late is refused."""
    await write(up, "up.VID-001.f.battery", 9000)
    await write(up, "up.VID-001.e.app.armed", 3)
    for number in range(3):  # the same vehicle's, one of them twice
        await JetStreamApi(client).publish(f"dict.VID-001.{number // 2:012x}", b"%d" % number)
    await sourced(client, 3)
    await client.request("fleet.prod.veh.VID-001.cmd.lock", b"{}", timeout=30)
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
                answer = await JetStreamApi(up).publish("up.VID-001.f.battery", b"under way")
                acknowledged.append(answer["seq"])

    # No mirror hears of what is deleted: first the object is there, then it is gone here.
    writing = asyncio.create_task(go_on())
    async with asyncio.timeout(120):  # it ends close behind
        while (await begin().run(prepare=True))["OBJ_TWIN_BLOBS"]["messages"] < 8:
            pass
    mirrored = (await JetStreamApi(other).request("STREAM.INFO.UP_00"))["created"]
    assert await Objects(client).remove("old")
    states = await begin().run()
    await writing
    assert acknowledged
    last = acknowledged[-1]
    assert states["UP_00"]["last_seq"] == last
    assert await content(other, "UP_00", last) == await content(client, "UP_00", last)
    assert states["TWIN_EVENTS"]["messages"] == 3
    assert states["DICT"]["messages"] == 2
    found = await JetStreamApi(other).message("DICT", last_by_subj=f"dict.VID-001.{0:012x}")
    assert found is not None
    assert found.data == b"1"
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
    await other_up.request("up.VID-001.e.app.armed", b"again", timeout=30)
    api = JetStreamApi(other)
    async with asyncio.timeout(60):
        while (await api.request("STREAM.INFO.TWIN_EVENTS"))["state"]["messages"] < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    made = (await api.request("STREAM.INFO.UP_00"))["created"]
    assert made == mirrored  # and not copied after all
    async with await Registry.open(tmp_path / "hub" / "migrated" / "hub.db") as registry:
        assert (await read_position(registry, "UP_00")).created == made
    down = await api.request("STREAM.INFO.DOWN_00")
    assert down["state"]["first_seq"] == 1_800_000_000 * 10**6
    with pytest.raises(BackupError, match="has moved, to nats://there"):
        require_here(tmp_path / "hub")


async def test_a_migration_that_was_cut_short_goes_on_or_is_taken_back(
    begin: Callable[[], Migration], client: Client, up: Client, other: Client, tmp_path: Path
) -> None:
    await write(up, "up.VID-001.f.battery", 500)
    await write(client, "quarantine.UP_00.1.1", 5)
    here, there = JetStreamApi(client), JetStreamApi(other)
    assert (await begin().run(prepare=True))["UP_00"]["messages"] >= 300
    require_here(tmp_path / "hub")
    await write(up, "up.VID-001.f.battery", 500)  # it works on

    work = begin()

    def cut(item: str, done: int, of: int) -> None:
        if item == "TWIN_EVENTS" and work._move.switched:
            raise HubError("cut")

    work._progress = cut
    with pytest.raises(HubError, match="cut"):
        await work.run()
    info = await there.request("STREAM.INFO.UP_00")
    assert not info["config"].get("mirror")
    with pytest.raises(NoRespondersError):
        await client.request("quarantine.UP_00.1.1", b"too late", timeout=30)
    states = await begin().run()
    assert states["QUARANTINE"]["messages"] == 5
    assert states["UP_00"]["messages"] == 1000
    # Once more: all of it is whole there already, and is kept.
    await begin().run()
    assert (await there.request("STREAM.INFO.UP_00"))["created"] == info["created"]

    with pytest.raises(BackupError, match="no control plane runs at nats://there"):
        await begin().remove()
    await begin().abort()
    assert await stream_names(there) == set()
    require_here(tmp_path / "hub")
    assert not (tmp_path / "hub" / "migrated").exists()
    # As it was: it takes messages in, and nobody mirrors it.
    await write(up, "up.VID-001.f.battery", 1)
    await write(client, "quarantine.UP_00.1.1", 1)
    assert (await here.request("STREAM.INFO.UP_00"))["state"]["messages"] == 1001
    assert await here.consumer_info("UP_00", "migrate") is None
    with pytest.raises(BackupError, match="no migration"):
        await begin().abort()


async def test_a_mirror_that_lacks_the_front_is_no_copy(
    begin: Callable[[], Migration],
    client: Client,
    up: Client,
    other: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a stream with an age, too: age has not taken what is missing there."""
    monkeypatch.setattr("backhaul_hub.migrate.migrate._BEHIND_MESSAGES_MAX", 0)
    await write(up, "up.VID-001.f.battery", 600)
    await begin().run(prepare=True)
    here, there = JetStreamApi(client), JetStreamApi(other)
    assert (await here.request("STREAM.INFO.UP_00"))["config"]["max_age"]
    assert (await there.request("STREAM.INFO.UP_00"))["state"]["messages"] == 600
    # The last of the 40 is not even there: nobody can ask for its time.
    await here.request("STREAM.MSG.DELETE.UP_00", {"seq": 40})
    await there.request("STREAM.PURGE.UP_00", {"seq": 41})
    assert (await begin().run())["UP_00"]["messages"] == 599
    assert await content(other, "UP_00", 600) == await content(client, "UP_00", 600)


async def test_a_server_that_holds_something_is_not_moved_to(
    begin: Callable[[], Migration],
    client: Client,
    other: Client,
    other_up: Client,
    tmp_path: Path,
) -> None:
    api = JetStreamApi(other)
    await api.request("STREAM.CREATE.UP_00", {"name": "UP_00", "subjects": ["up.>"]})
    await write(other_up, "up.VID-009.f.battery", 2)
    with pytest.raises(BackupError, match="holds 2 messages in UP_00"):
        await begin().run()
    require_here(tmp_path / "hub")
    work = begin()
    work._there, work._new = client, JetStreamApi(client)
    with pytest.raises(BackupError, match="the server that this hub has already"):
        await work.run()


async def test_streams_stay_until_the_other_hub_runs_and_has_all(
    begin: Callable[[], Migration], client: Client, up: Client, other: Client, tmp_path: Path
) -> None:
    await write(up, "up.VID-001.f.battery", 5)
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
    assert await stream_names(JetStreamApi(client)) == set()
    with pytest.raises(BackupError, match="has moved"):
        require_here(tmp_path / "hub")


async def test_hubs_that_speak_tls_are_joined_by_their_authority(tmp_path: Path) -> None:
    pair = Pair(tmp_path, TlsChoice())
    async with pair.running():
        new = load(pair.rigs["there"].directory).nats
        there = await connect(new.url, new.control)
        async with pair.bridge(load(pair.rigs["here"].directory), there):
            pass
        await there.close()


async def test_a_leaf_port_that_is_none_is_said(
    pair: Pair, hub: HubConfig, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Bridge._answers

    async def until_refused(bridge: Bridge, subject: str) -> bool:
        if "refused" in bridge._log.read_text():
            raise TimeoutError  # its time is over once it has dialled, and no sooner
        return await answers(bridge, subject)

    monkeypatch.setattr("backhaul_hub.migrate.bridge._CONNECT_S_MAX", 120.0)
    monkeypatch.setattr(Bridge, "_answers", until_refused)
    wrong = f"nats-leaf://127.0.0.1:{free_port()}"
    with pytest.raises(BackupError, match=r"are not joined: .*refused"):
        async with pair.bridge(hub, other, wrong):
            pytest.fail("there is nobody")
