"""With a real server: transactions go to the journal first, another hub.db follows it, and of two writers one is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.config import load
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import add_device, read_devices
from backhaul_hub.db.journal import NoJournal
from backhaul_hub.db.migrations import SCHEMA_VERSION
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import DeposedError, HubError, RegistryError
from backhaul_hub.standby.copies import CopyDesk, fetch_copy
from backhaul_hub.standby.entry import JournalError
from backhaul_hub.standby.leading import LeadersJournal
from backhaul_hub.standby.replica import FollowingRegistry
from backhaul_hub.standby.rows import Term, begin
from backhaul_hub.standby.stream import JournalStream
from backhaul_runtime.clock import SystemClock
from tests.support.server_alone import server_alone
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.rig.parts import HubRig

pytestmark = pytest.mark.nats

CLOCK = SystemClock()
TERM = Term(0, "a", {})
LARGE = 1_200_000


class Scene:
    """A server with a journal, and hub.db of the machine that leads."""

    def __init__(self, rig: HubRig, client: Client, created: str) -> None:
        self.rig = rig
        self.client = client
        self.created = created
        self.path = rig.directory / "hub.db"
        self.stream = JournalStream(client)
        self._names = map("n{}".format, count())

    def journal(self, position: int = 0) -> LeadersJournal:
        name = self._names.__next__
        return LeadersJournal(self.stream, TERM, SCHEMA_VERSION, position, name, CLOCK)

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[FollowingRegistry]:
        """Return a hub.db that goes by the journal from its beginning."""
        path = self.path.with_name("follower.db")
        async with await Registry.open(path, NoJournal()) as registry:
            await begin(registry, self.created)
        replica = await FollowingRegistry.open(path)
        assert replica is not None
        try:
            yield replica
        finally:
            await replica.close()

    async def follow(self, replica: FollowingRegistry) -> None:
        while entries := await self.stream.read(replica.assembler):
            await replica.apply(entries)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(server_alone(tmp_path / "hub"))
        client = await stack.enter_async_context(rig.connection())
        made = await JournalStream(client).make(load(rig.directory))
        scene = Scene(rig, client, made.created)
        async with await Registry.open(scene.path, NoJournal()) as registry:
            await begin(registry, made.created)
        yield scene


def device(number: int, token: str = "") -> Device:
    return Device(f"VID-{number:03}", token or f"t{number}", "key", number)


def rows_in(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT * FROM device ORDER BY id").fetchall()
    finally:
        connection.close()


async def test_whoever_follows_has_the_same_rows_also_of_what_is_larger_than_a_message(
    scene: Scene,
) -> None:
    journal = scene.journal()
    async with await Registry.open(scene.path, journal) as registry, scene.follower() as replica:
        await add_device(registry, device(1))
        await add_device(registry, device(2, "x" * LARGE))
        with pytest.raises(RegistryError, match="exists already"):
            await add_device(registry, device(1))
        await registry.write([RowChange("UPDATE device SET added_ns = added_ns + 1", [()])])
        await registry.write([])
        assert journal.position > 4, "one was stored as several"
        await scene.follow(replica)
        assert replica.position == journal.position
        assert rows_in(scene.path) == rows_in(scene.path.with_name("follower.db"))
        assert await read_devices(registry) == await read_devices(replica.registry)


async def test_a_writer_whose_place_is_taken_takes_its_transaction_back_and_writes_nothing_more(
    scene: Scene,
) -> None:
    former, leads = scene.journal(), scene.journal()
    async with await Registry.open(scene.path, former) as registry:
        await add_device(registry, device(1))
        leads.position = former.position
        await leads.leave("")  # any entry of another machine
        with pytest.raises(DeposedError, match="another machine leads"):
            await add_device(registry, device(2))
        with pytest.raises(DeposedError):
            await add_device(registry, device(3))
        assert [each.id for each in (await read_devices(registry)).values()] == ["VID-001"]
    assert former.why == "another machine leads"
    await asyncio.wait_for(former.beat(), 60)  # it has ended


async def test_while_nobody_acknowledges_a_transaction_waits_and_is_stored_once(
    scene: Scene,
) -> None:
    journal = scene.journal()
    async with await Registry.open(scene.path, journal) as registry:
        await add_device(registry, device(1))
        await scene.rig.server.stop()
        writing = asyncio.create_task(add_device(registry, device(2)))
        await until(lambda: not registry._settled.is_set() and not scene.client.is_connected)
        reading = asyncio.create_task(read_devices(registry))
        assert rows_in(scene.path) == [("VID-001", "t1", "key", 1)], "hub.db is not ahead"
        assert not writing.done()
        assert not reading.done()
        await scene.rig.server.start()
        await writing
        assert list(await reading) == ["VID-001", "VID-002"], "nobody reads what may be taken back"
        assert journal.why == ""
    ends = await scene.stream.ends()
    assert ends is not None
    assert ends.last_seq == journal.position == 2


async def test_a_commit_that_nobody_awaits_any_more_is_whole_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_hub.standby.leading._END_S", 60.0)
    journal = scene.journal()
    async with await Registry.open(scene.path, journal) as registry:
        for number in range(20):
            writing = asyncio.create_task(add_device(registry, device(number)))
            for _ in range(number):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        assert journal.why == ""
        async with scene.follower() as replica:
            await scene.follow(replica)
            assert await read_devices(replica.registry) == await read_devices(registry)


async def test_rows_that_differ_are_noticed_and_a_whole_copy_goes_on(scene: Scene) -> None:
    journal = scene.journal()
    async with await Registry.open(scene.path, journal) as registry:
        await add_device(registry, device(1))
        async with scene.follower() as replica:
            await scene.follow(replica)
            path = scene.path.with_name("follower.db")
            damaged = sqlite3.connect(path)
            damaged.execute("DELETE FROM device")
            damaged.commit()
            damaged.close()
            await registry.write([RowChange("UPDATE device SET added_ns = 7", [()])])
            with pytest.raises(RegistryError, match="differs from the leader's"):
                await scene.follow(replica)
        desk = CopyDesk(scene.rig.directory, "copy".__str__)
        with pytest.raises(HubError, match="no copy of hub"):
            await fetch_copy(scene.client, path)
        await desk.open(scene.client)
        await fetch_copy(scene.client, path)
        await desk.close()
        copied = await FollowingRegistry.open(path)
        assert copied is not None
        await add_device(registry, device(2, "x" * LARGE))
        await scene.follow(copied)
        assert await read_devices(copied.registry) == await read_devices(registry)
        await copied.close()


async def test_a_journal_that_has_forgotten_entries_and_another_schema_cannot_be_followed(
    scene: Scene,
) -> None:
    journal = scene.journal()
    async with await Registry.open(scene.path, journal) as registry, scene.follower() as replica:
        await add_device(registry, device(1))
        replica.assembler.position = replica.position = 5
        await add_device(registry, device(2))
        replica.read_again()
        assert await scene.stream.read(replica.assembler) == []
        replica.position = 0
        replica.read_again()
        [first, *_] = await scene.stream.read(replica.assembler)
        other = first._replace(entry=type(first.entry)("rows", "n", "a", SCHEMA_VERSION + 1))
        with pytest.raises(JournalError, match="has schema"):
            await replica.apply([other])


async def test_a_program_that_is_not_the_control_plane_may_only_read(scene: Scene) -> None:
    async with await Registry.open(scene.path) as registry:
        with pytest.raises(RegistryError, match="this hub has stand-bys"):
            await add_device(registry, device(1))
        assert await read_devices(registry) == {}
