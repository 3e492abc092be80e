"""Dictionaries at the hub: kept before they are confirmed, found by all, and waited for where they are missing.

Covered on a real server: the order of DICT, hub.db and continuity; hub.db put back, DICT deleted, both lost; what
waits and is taken up. Without one: bounds, the memory, when vehicles are asked. Not covered: how an agent answers.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec import Kind, chain, hash_of
from backhaul_codec.subjects import dictionary_subject, stored_dictionary_subject
from backhaul_codec.wire.dictionaries import (
    digest_of,
    encode_dictionary,
    read_dictionary,
)
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.uplink.dictionary_bounds import IN_USE_NS, KEPT_MAX, DictionaryKey
from backhaul_runtime.clock import SystemClock
from tests.hub.packed_bundles import DIGEST, NAMES, bundle, carried, packed
from tests.support.rig import patient
from tests.support.waiting import until

from .up_stream import AT_ONCE, DEVICE, LANE, STREAM, Up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_hub.continuity.lane_key import LaneKey
    from tests.support.nats_server import NatsServer


@pytest.fixture
async def empty(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Up]:
    """An UP stream with nothing in it, and a connection to fill it."""
    up = Up(nats_server, tmp_path)
    client = await patient.connect(nats_server.url)
    up.api = JetStreamApi(client)
    await up.create(subjects=["up.>"])
    await up.api.request(
        "STREAM.CREATE.QUARANTINE", {"name": "QUARANTINE", "subjects": ["quarantine.>"]}
    )
    yield up
    with contextlib.suppress(Exception):
        await client.close()


async def sent(up: Up, *messages: bytes) -> None:
    for message in messages:
        leaf = "b"
        if message[0] >> 4 == Kind.DICTIONARY:
            leaf = dictionary_subject(digest_of(read_dictionary(message)))
        await up.api.publish(f"up.{DEVICE}.{leaf}", message)


async def quarantined(up: Up) -> int:
    state: dict[str, int] = (await up.api.request("STREAM.INFO.QUARANTINE"))["state"]
    return state["messages"]


def rows(up: Up, table: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(up.directory / "hub.db")) as db:
        return db.execute(f"SELECT * FROM {table}").fetchall()


def forget(up: Up, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(up.directory / "hub.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


@pytest.mark.nats
async def test_what_is_packed_is_read_and_proven_by_the_bytes_as_they_came(empty: Up) -> None:
    first = chain(carried(1), epoch=7, seq=1, link=bytes(6))
    second = chain(packed(2), epoch=7, seq=2, link=hash_of(dictionary_subject(DIGEST), first))
    third = chain(packed(3), epoch=7, seq=3, link=hash_of("b", second))
    async with empty.reading():
        await sent(empty, first, second, third)
        await empty.settles((1, 3))
        assert empty.state().proven == (3, hash_of("b", third))
        assert not await quarantined(empty)
    stored = await empty_dict(empty)
    assert stored == {stored_dictionary_subject(DEVICE, DIGEST)}
    assert [(row[0], row[1], row[2]) for row in rows(empty, "dictionary")] == [
        (DEVICE, DIGEST.hex(), NAMES)
    ]


async def empty_dict(up: Up) -> set[str]:
    client = await patient.connect(up.server.url)
    info = await JetStreamApi(client).request("STREAM.INFO.DICT", {"subjects_filter": ">"})
    await client.close()
    return set(info["state"].get("subjects") or {})


@pytest.mark.nats
async def test_a_dictionary_counts_as_held_only_once_dict_and_hub_db_have_it(
    empty: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vehicle packs against it once it is confirmed: from then on no reader may lack it."""
    order: list[str] = []
    publish, write = JetStreamApi.publish, Registry.write

    async def publishes(self: JetStreamApi, subject: str, *rest: Any) -> Any:
        answer = await publish(self, subject, *rest)
        if subject.startswith("dict."):
            order.append(f"DICT, held: {LANE in empty.continuity.lanes}")
        return answer

    async def writes(self: Registry, changes: Any) -> None:
        await write(self, changes)
        if any("INTO dictionary" in change.statement for change in changes):
            order.append(f"hub.db, held: {LANE in empty.continuity.lanes}")

    async with empty.reading():
        monkeypatch.setattr(JetStreamApi, "publish", publishes)
        monkeypatch.setattr(Registry, "write", writes)
        await sent(empty, carried(1))
        await empty.settles((1, 1))
    assert order == ["DICT, held: False", "hub.db, held: False"]


@pytest.mark.nats
async def test_who_sent_a_new_dictionary_is_told_once_that_it_is_held(empty: Up) -> None:
    """Its vehicle packs nothing before; a watermark is told seldom otherwise."""
    told: list[tuple[LaneKey, int, list[tuple[int, int]]]] = []
    async with empty.reading():
        empty.dictionaries.on_held = lambda lane, seq: told.append(
            (lane, seq, list(empty.state(lane).held))
        )
        await sent(empty, bundle(1), carried(2), packed(3), carried(4))
        await empty.settles((1, 4))
        await until(lambda: bool(told), "word of the dictionary")
    assert [(lane, seq) for lane, seq, _ in told] == [(LANE, 2)]
    assert told[0][2][0][1] >= 2, "it counts as held by then"


@pytest.mark.nats
async def test_what_dict_has_lost_is_there_again_after_a_look(empty: Up) -> None:
    """As where its store was put back from an older copy. The jobs know of no other place."""
    stored = {stored_dictionary_subject(DEVICE, DIGEST)}
    async with empty.reading():
        await sent(empty, carried(1))
        await empty.settles((1, 1))
        await empty.api.request("STREAM.PURGE.DICT")
        assert await empty_dict(empty) == set()
        await empty.dictionaries.look()
        assert await empty_dict(empty) == stored


@pytest.mark.nats
async def test_without_dict_nothing_is_confirmed_and_all_is_once_it_is_there_again(
    empty: Up,
) -> None:
    async with empty.reading():
        await empty.api.request("STREAM.DELETE.DICT")
        await sent(empty, bundle(1), carried(2), packed(3))
        with pytest.raises(HubError):
            await empty.dictionaries.keep({DictionaryKey(DEVICE, DIGEST): NAMES})
        # The first message may have been read by itself, and needs no dictionary.
        held = empty.continuity.lanes.get(LANE)
        assert held is None or held.watermark == 1
        assert rows(empty, "dictionary") == []
        await empty.create_dict()
        await empty.settles((1, 3))


@pytest.mark.nats
async def test_a_message_that_lacks_its_dictionary_waits_and_is_taken_up_when_it_comes(
    empty: Up,
) -> None:
    """Whether its vehicle still has it or not: it stands in UP. Meanwhile its place is a gap."""
    empty.folding = AT_ONCE
    async with empty.reading():
        await sent(empty, bundle(1), packed(2), packed(3), bundle(4))
        await empty.settles((1, 1), (4, 4))
        assert empty.state().gaps == [(2, 3)]
        assert empty.state().wanted == ([], []), "the vehicle is asked for the dictionary alone"
        assert empty.state().explained.total == 0
        assert await quarantined(empty) == 2
        assert [each.messages for each in empty.dictionaries.awaited.missing()] == [2]
        assert empty.unreadable == [], "it is no garbage"
        await sent(empty, carried(5))
        await empty.settles((1, 5))
        await until(lambda: rows(empty, "awaited_dictionary") == [])
        assert not empty.state().waiting
    [[*_, ranges]] = rows(empty, "block_lane")
    assert ranges == "[[1,5]]", "an audit counts on what was taken up"


@pytest.mark.nats
async def test_what_is_taken_up_of_old_blocks_stands_in_them(
    empty: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_hub.continuity.blocks.BLOCK_MESSAGES", 4)
    async with empty.reading():
        await sent(empty, bundle(1), *map(packed, range(2, 12)), *map(bundle, range(12, 20)))
        await empty.settles((1, 1), (12, 19))
        await sent(empty, carried(20))
        await empty.settles((1, 20))
        await until(lambda: not rows(empty, "awaited_dictionary"))
    held = {number: ranges for _, number, *_, ranges in rows(empty, "block_lane")}
    assert held[0] == "[[1,3]]"
    assert held[1] == "[[4,7]]"
    assert held[2] == "[[8,11]]"


@pytest.mark.nats
async def test_what_waits_is_taken_up_by_the_next_control_plane(empty: Up) -> None:
    async with empty.reading():
        await sent(empty, packed(1), packed(2))
        await empty.read_up_to(2)
        await until(lambda: [row[5] for row in rows(empty, "awaited_dictionary")] == [2])
    await_rows = rows(empty, "awaited_dictionary")
    assert [row[:6] for row in await_rows] == [(DEVICE, DIGEST.hex(), STREAM, 1, 2, 2)]
    # DICT had it, as where hub.db was put back.
    client = await patient.connect(empty.server.url)
    subject = stored_dictionary_subject(DEVICE, DIGEST)
    await JetStreamApi(client).publish(subject, encode_dictionary(NAMES))
    await client.close()
    async with empty.reading():
        await empty.settles((1, 2))
        await until(lambda: rows(empty, "awaited_dictionary") == [])


@pytest.mark.nats
async def test_a_control_plane_that_ended_before_it_took_all_up_goes_on(empty: Up) -> None:
    async with empty.reading():
        await sent(empty, packed(1), packed(2))
        await until(lambda: [row[5] for row in rows(empty, "awaited_dictionary")] == [2])
    with contextlib.closing(sqlite3.connect(empty.directory / "hub.db")) as db:
        row = (DEVICE, DIGEST.hex(), NAMES, 1, 1)
        db.execute("INSERT INTO dictionary VALUES (?, ?, ?, ?, ?)", row)
        db.commit()
    async with empty.reading():
        await empty.settles((1, 2))


@pytest.mark.nats
async def test_an_older_hub_db_is_given_what_dict_has(empty: Up) -> None:
    async with empty.reading():
        await sent(empty, carried(1), packed(2))
        await empty.settles((1, 2))
    forget(empty, "DELETE FROM dictionary", "DELETE FROM lane", "DELETE FROM lane_log")
    forget(empty, "UPDATE position SET seq = 1")  # beyond the message that brings it
    async with empty.reading():
        assert [row[2] for row in rows(empty, "dictionary")] == [NAMES]


@pytest.mark.nats
async def test_a_rebuilt_hub_db_has_from_dict_what_up_has_lost(empty: Up) -> None:
    """As after `restore --from-streams`, a month after the dictionary came: UP is read from its start."""
    async with empty.reading():
        await sent(empty, carried(1), packed(2), packed(3))
        await empty.settles((1, 3))
        await empty.api.request(f"STREAM.PURGE.{STREAM}", {"seq": 2})
    (empty.directory / "hub.db").unlink()
    async with empty.reading():
        await empty.settles((2, 3))
        assert not list(empty.dictionaries.awaited)


@pytest.mark.nats
async def test_a_dict_that_was_lost_is_filled_from_hub_db(empty: Up) -> None:
    async with empty.reading():
        await sent(empty, carried(1))
        await empty.settles((1, 1))
        await empty.api.request("STREAM.DELETE.DICT")
        await empty.create_dict()
    async with empty.reading():
        assert await empty_dict(empty) == {stored_dictionary_subject(DEVICE, DIGEST)}
        message = await empty.api.message(
            "DICT", last_by_subj=stored_dictionary_subject(DEVICE, DIGEST)
        )
        assert message is not None
        assert read_dictionary(message.data, DIGEST) == NAMES


@pytest.mark.nats
async def test_with_both_lost_up_itself_brings_it_and_else_the_vehicle_is_asked(
    empty: Up,
) -> None:
    async with empty.reading():
        await sent(empty, carried(1), packed(2))
        await empty.settles((1, 2))
        await empty.api.request("STREAM.PURGE.DICT")
    (empty.directory / "hub.db").unlink()
    async with empty.reading():
        await empty.settles((1, 2))
        await empty.api.request("STREAM.PURGE.DICT")
        await empty.api.request(f"STREAM.PURGE.{STREAM}", {"seq": 2})
    (empty.directory / "hub.db").unlink()
    async with empty.reading():
        await until(lambda: list(empty.dictionaries.awaited.missing()) != [])
        assert empty.dictionaries.awaited.asks({DEVICE: 1}, 0.0) == [(DEVICE, DIGEST)]
        await sent(empty, carried(3))
        await empty.settles((2, 3))


@pytest.mark.nats
async def test_a_message_that_is_garbage_all_the_same_is_explained_when_it_is_taken_up(
    empty: Up,
) -> None:
    message = packed(1)
    head = bytearray(message)
    head[18] ^= 1  # the crc
    async with empty.reading():
        await sent(empty, bytes(head), packed(2))
        await sent(empty, carried(3))
        await empty.settles((2, 3))
        assert empty.state().watermark == 0, "it may have been damaged on its way: it is asked for"


@pytest.mark.nats
async def test_a_dictionary_beyond_the_bound_is_not_confirmed(empty: Up) -> None:
    some = [b"names %d" % number for number in range(KEPT_MAX + 1)]
    empty.clock.ns = SystemClock().now_ns()  # the server stamps what it stores
    async with empty.reading():
        await sent(empty, *(carried(seq, body) for seq, body in enumerate(some, 1)))
        await empty.settles((1, KEPT_MAX))
        await empty.read_up_to(KEPT_MAX + 1)
        assert await quarantined(empty) == 1
        assert len(rows(empty, "dictionary")) == len(await empty_dict(empty)) == KEPT_MAX
        assert list(empty.dictionaries.beyond_bounds()) == [DEVICE]
        assert empty.unreadable.count(DEVICE) == 1
        empty.clock.ns += IN_USE_NS + 1
        await sent(empty, carried(KEPT_MAX + 1, some[-1]))
        await empty.settles((1, KEPT_MAX + 1))
        await until(lambda: len(rows(empty, "dictionary")) == KEPT_MAX + 1)
        assert not empty.dictionaries.beyond_bounds()
        assert stored_dictionary_subject(DEVICE, digest_of(some[-1])) in await empty_dict(empty)


@pytest.mark.nats
async def test_a_dictionary_stays_for_as_long_as_up_holds_a_message_that_refers_to_it(
    empty: Up,
) -> None:
    some = [b"names %d" % number for number in range(KEPT_MAX + 2)]
    empty.clock.ns = SystemClock().now_ns()  # the server stamps what it stores
    async with empty.reading():
        await sent(empty, *(carried(seq, body) for seq, body in enumerate(some[:KEPT_MAX], 1)))
        await empty.settles((1, KEPT_MAX))
        empty.clock.ns += IN_USE_NS + 1
        await sent(empty, carried(KEPT_MAX + 1, some[KEPT_MAX]))
        await empty.settles((1, KEPT_MAX + 1))
        assert len(await empty_dict(empty)) == KEPT_MAX + 1, "UP holds what refers to the first"
        # As if all were used before UP's oldest message.
        forget(empty, "UPDATE dictionary SET used_ns = 5")
        await sent(empty, carried(KEPT_MAX + 2, some[-1]))
        await empty.settles((1, KEPT_MAX + 2))
        await until(lambda: len(rows(empty, "dictionary")) == KEPT_MAX)
        assert stored_dictionary_subject(DEVICE, digest_of(some[-1])) in await empty_dict(empty)
