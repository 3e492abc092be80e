"""What the hub notices of its own losses: UP purged, deleted, thinned, put back from a copy.

Not covered: a power cut of the hub's machine; putting back an older copy of the store is what it
comes to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.nats import stream_reader
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import ReadQuestion, Stored, read_many
from tests.support.rig import patient
from tests.support.waiting import until

from .up_stream import LANE, STREAM, Up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

pytestmark = [pytest.mark.nats]


async def test_a_purge_is_noticed_and_what_is_left_stays_held(up: Up) -> None:
    async with up.reading():
        await up.settles((1, 20))
        await up.api.request(f"STREAM.PURGE.{STREAM}", {"seq": 15})
        await up.poll()
        await up.settles((15, 20))
        assert up.state().watermark == 0
        assert up.state().gaps == [(1, 14)]
        assert up.state().lost == 14
        # What is sent again fills the gap, and is no news.
        await up.frames(*range(1, 15))
        await up.settles((1, 20))
        assert (up.state().messages, up.state().repeats) == (20, 14)


async def test_a_purge_of_everything_leaves_gaps_up_to_the_newest(up: Up) -> None:
    async with up.reading():
        await up.settles((1, 20))
        await up.api.request(f"STREAM.PURGE.{STREAM}")
        await up.poll()
        await up.settles()
        assert up.state().gaps == [(1, 20)]
        await up.frames(21)
        await up.settles((21, 21))


async def test_a_purge_while_nobody_looked_is_noticed_at_the_start(up: Up) -> None:
    async with up.reading():
        await up.settles((1, 20))
    client = await patient.connect(up.server.url)
    await JetStreamApi(client).request(f"STREAM.PURGE.{STREAM}", {"seq": 15})
    await client.close()
    async with up.reading():
        await up.settles((15, 20))


async def test_single_deletions_are_noticed(up: Up) -> None:
    async with up.reading():
        await up.settles((1, 20))
        for seq in (4, 5, 20):
            await up.api.request(f"STREAM.MSG.DELETE.{STREAM}", {"seq": seq})
        await up.poll()
        await up.settles((1, 3), (6, 19))
        await up.frames(5)
        await up.settles((1, 3), (5, 19))


@pytest.mark.parametrize("refused", ["lanes_in", "content"])
async def test_a_deletion_is_taken_in_also_where_hub_db_refuses_a_read_meanwhile(
    up: Up, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    async with up.reading() as reader:
        await up.settles((1, 20))
        really_read, refusals = getattr(reader._blocks, refused), [RegistryError("busy")]

        async def read(*which: object) -> object:
            if refusals:
                raise refusals.pop()
            return await really_read(*which)

        monkeypatch.setattr(reader._blocks, refused, read)
        await up.api.request(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 4})
        await up.poll()
        await up.settles((1, 3), (5, 20))
        await until(lambda: not refusals, "a read was refused")
        await up.frames(21)
        await up.settles((1, 3), (5, 21))
        content = await reader._blocks.content(0)
        assert content is not None
        assert list(content.lanes[LANE]) == [(1, 3), (5, 21)]


async def test_a_purge_of_one_device_is_noticed(up: Up) -> None:
    async with up.reading():
        await up.settles((1, 20))
        await up.api.request(f"STREAM.PURGE.{STREAM}", {"filter": "up.VID-001.f.battery"})
        await up.poll()
        await up.settles()


async def test_a_stream_made_anew_holds_what_comes_again(up: Up) -> None:
    async with up.reading():
        await up.settles((1, 20))
        await up.api.request(f"STREAM.DELETE.{STREAM}")
        await up.create()
        await up.frames(3, 4)
        await up.poll()
        await up.settles((3, 4))
        assert up.state().gaps == [(1, 2), (5, 20)]
        assert up.state().lost == 18


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
async def test_an_older_copy_of_the_store_is_noticed(up: Up, stopped: bool) -> None:
    up.server.stop()
    copy = up.copy_store()
    up.server.start()
    async with up.reading():
        await up.frames(*range(21, 41))
        await up.settles((1, 40))
        if not stopped:
            up.server.kill()
            up.put_back(copy)
            up.server.start()
            await up.settles((1, 20))
            assert up.state().gaps == [(21, 40)]
            await up.frames(*range(21, 41))
            await up.settles((1, 40))
            return
    up.server.kill()
    up.put_back(copy)
    up.server.start()
    async with up.reading():
        await up.settles((1, 20))
        assert up.state().gaps == [(21, 40)]


async def test_an_older_copy_that_took_in_as_much_as_was_lost_is_noticed(up: Up) -> None:
    """The stream is as long as it was: only the time of a message tells that it is another."""
    up.server.stop()
    copy = up.copy_store()
    up.server.start()
    async with up.reading():
        await up.frames(*range(21, 41))
        await up.settles((1, 40))
    up.server.kill()
    up.put_back(copy)
    up.server.start()
    client = await patient.connect(up.server.url)
    up.api = JetStreamApi(client)
    await up.frames(*range(31, 61))  # 31..60 where 21..50 would have been
    await client.close()
    async with up.reading():
        await up.settles((1, 20), (31, 60))
        assert up.state().gaps == [(21, 30)]


async def test_what_age_takes_stays_held(up: Up) -> None:
    async with up.reading() as reader:
        await up.settles((1, 20))
        soon = {"max_age": 10**8, "duplicate_window": 10**8}
        await up.api.request(f"STREAM.UPDATE.{STREAM}", (await up.info())["config"] | soon)
        await up.empties()
        await up.poll()
        await until(lambda: reader.position.first_seq == 21, "what age took is noticed")
        # From now on it takes nothing before it can be read.
        await up.api.request(
            f"STREAM.UPDATE.{STREAM}", (await up.info())["config"] | {"max_age": 0}
        )
        await up.frames(21)
        await up.settles((1, 21))
        assert up.state().watermark == 21
        # The blocks are gone, what was in them is remembered: a loss afterwards takes none of it.
        await up.api.request(f"STREAM.DELETE.{STREAM}")
        await up.create()
        await up.poll()
        await up.frames(23)
        await up.settles((1, 20), (23, 23))


async def test_a_database_put_back_from_a_copy_reads_on_from_where_it_was(up: Up) -> None:
    database = up.directory / "hub.db"
    async with up.reading():
        await up.settles((1, 20))
    older = database.read_bytes()
    async with up.reading():
        await up.frames(*range(21, 31))
        await up.settles((1, 30))
    database.write_bytes(older)
    async with up.reading():
        await up.settles((1, 30))
        assert up.state().repeats == 0


async def test_the_watermark_never_stands_above_what_is_there(up: Up) -> None:
    """Whatever the order of losses: held is what UP holds."""
    async with up.reading():
        await up.settles((1, 20))
        await up.frames(30, 31, 5)
        await up.api.request(f"STREAM.PURGE.{STREAM}", {"seq": 10})
        await up.poll()
        await up.settles((5, 5), (10, 20), (30, 31))
        await up.api.request(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 23})
        await up.poll()
        await up.settles((10, 20), (30, 31))
        assert LANE in up.continuity.lanes


class Behind:
    """A server of a cluster that has not got everything: up to `last`, without `lacks`."""

    def __init__(self, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last = 20
        self.lacks = 0
        self.asked = 0
        up.read_many = self._read_many
        monkeypatch.setattr(stream_reader, "read_many", self._read_many)

    async def _read_many(
        self, client: Client, wanted: Sequence[ReadQuestion], **options: float
    ) -> list[list[Stored] | HubError]:
        self.asked += 1
        [found] = await read_many(client, wanted, **options)
        assert not isinstance(found, HubError)
        return [[each for each in found if each.seq <= self.last and each.seq != self.lacks]]


async def test_what_a_server_that_lags_behind_does_not_have_is_not_taken_for_lost(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked_again() -> None:
        seen = behind.asked
        await until(lambda: behind.asked > seen + 2, "asked three times more")

    behind = Behind(up, monkeypatch)
    async with up.reading() as reader:
        await up.settles((1, 20))
        behind.last = 10
        # Seen all at once: up to 24 nothing would be missing.
        await up.frames(*range(21, 31))
        for last, lacks in ((10, 0), (30, 25)):
            behind.last, behind.lacks = last, lacks
            await asked_again()
            assert reader.position.seq == 20
            assert up.state().lost == 0
        behind.lacks = 0
        await up.settles((1, 30))
        assert (up.state().messages, up.state().repeats) == (30, 0)


async def test_what_a_lagging_server_leaves_out_of_a_thinned_stream_is_not_taken_for_lost(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = Behind(up, monkeypatch)
    async with up.reading():
        await up.settles((1, 20))
        behind.last = 10
        await up.api.request(f"STREAM.PURGE.{STREAM}", {"seq": 5})
        await up.poll()
        seen = behind.asked
        await until(lambda: behind.asked > seen + 1, "asked again")
        behind.last = 20
        await up.settles((5, 20))
        assert up.state().lost == 4
        assert up.state().repeats == 0
