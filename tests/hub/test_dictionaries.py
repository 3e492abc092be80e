"""Dictionaries at the hub: kept before they are confirmed, found by all, and waited for where they are missing.

Covered on a real server: the order of DICT, hub.db and continuity; hub.db put back, DICT deleted, both lost; what
waits and is taken up. Without one: bounds, the memory, when vehicles are asked. Not covered: how an agent answers.
"""

from __future__ import annotations

import contextlib
import sqlite3
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_codec import Kind, Point, chain, encode_bundle, hash_of, restamp
from backhaul_codec.subjects import dictionary_subject, stored_dictionary_subject
from backhaul_codec.wire.dictionaries import (
    digest_of,
    encode_dictionary,
    pack_with,
    read_dictionary,
)
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_hub.continuity.examine import MissingDictionaryError, UnreadableError, examine
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import Stored
from backhaul_hub.uplink.awaited import (
    ASK_S,
    ASK_S_MAX,
    AWAITED_MAX,
    COPIED_MAX,
    Awaited,
    AwaitedBook,
)
from backhaul_hub.uplink.dictionaries import Dictionaries, parts
from backhaul_hub.uplink.dictionary_bounds import IN_USE_NS, KEPT_MAX, DictionaryKey, choose
from tests.support.hub_sync import FakeClock
from tests.support.rig import patient
from tests.support.waiting import until

from .up_stream import DEVICE, LANE, STREAM, Up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from tests.support.nats_server import NatsServer

NODES = [f"node{number}" for number in range(30)]


def bundle(seq: int, *, epoch: int = 7) -> bytes:
    points = [Point(node, "temperature", seq * 10**9, 20.0 + seq) for node in NODES]
    return encode_bundle(points, epoch=epoch, seq=seq)


NAMES = unseal(bundle(1))[1]
DIGEST = digest_of(NAMES)


def carried(seq: int, body: bytes = NAMES) -> bytes:
    return restamp(encode_dictionary(body), epoch=7, seq=seq)


def packed(seq: int, body: bytes = NAMES) -> bytes:
    message = pack_with(bundle(seq), body)
    assert len(message) < len(bundle(seq)) / 2
    return message


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
    forget(empty, "DELETE FROM dictionary", "DELETE FROM lane", "DELETE FROM block_lane")
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
        message = await empty.api.last_message("DICT", stored_dictionary_subject(DEVICE, DIGEST))
        assert message is not None
        assert read_dictionary(message, DIGEST) == NAMES


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
    async with empty.reading():
        await sent(empty, *(carried(seq, body) for seq, body in enumerate(some, 1)))
        await empty.settles((1, KEPT_MAX))
        await empty.read_up_to(KEPT_MAX + 1)
        assert await quarantined(empty) == 1
        assert len(rows(empty, "dictionary")) == len(await empty_dict(empty)) == KEPT_MAX
        assert empty.dictionaries.beyond_bounds() == {DEVICE: "64 are in use"}
        assert empty.unreadable.count(DEVICE) == 1
        empty.clock.ns += IN_USE_NS + 1
        await sent(empty, carried(KEPT_MAX + 1, some[-1]))
        await empty.settles((1, KEPT_MAX + 1))
        await until(lambda: len(rows(empty, "dictionary")) == KEPT_MAX)
        assert not empty.dictionaries.beyond_bounds()
        there = await empty_dict(empty)
        assert stored_dictionary_subject(DEVICE, digest_of(some[-1])) in there
        assert len(there) == KEPT_MAX


def test_the_one_that_was_used_longest_ago_makes_room() -> None:
    now_ns = 2 * IN_USE_NS
    uses = {bytes([number] * 6): number for number in range(KEPT_MAX)}
    uses[bytes(6)] = now_ns
    new = (
        DictionaryKey("a", b"newest"),
        DictionaryKey("a", b"second"),
        DictionaryKey("b", b"newest"),
    )
    choice = choose(new, {"a": uses}, now_ns)
    assert choice.keep == list(new)
    assert choice.drop == [("a", bytes([1] * 6)), ("a", bytes([2] * 6))]
    in_use = dict.fromkeys(uses, now_ns - IN_USE_NS + 1)
    choice = choose([*new[:1], DictionaryKey("a", bytes(6))], {"a": in_use}, now_ns)
    assert choice == ([], [], {new[0]}), "what is known already needs no room"


class Kept:
    """hub.db and a DICT that takes everything."""

    def __init__(self) -> None:
        self.published: list[str] = []

    async def publish(self, subject: str, body: bytes) -> dict[str, Any]:
        self.published.append(subject)
        return {}

    async def request(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"state": {}}


async def test_the_memory_is_bounded_and_what_fell_out_of_it_is_found_in_hub_db(
    tmp_path: Path,
) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        api, clock = cast("JetStreamApi", Kept()), FakeClock()
        dictionaries = Dictionaries(api, registry, clock, bytes_max=4 * len(NAMES))
        devices = [f"VID-{number:03}" for number in range(40)]
        await dictionaries.keep({DictionaryKey(device, DIGEST): NAMES for device in devices})
        in_memory = [each for each in devices if dictionaries.find(each, DIGEST)]
        assert in_memory == devices[-4:]
        assert dictionaries.find("VID-999", DIGEST) is None, "another vehicle's is not lent"
        messages = [
            Stored(1, "up.VID-000.b", packed(2), 1),
            Stored(2, "up.VID-039.b", packed(2), 1),
        ]
        await dictionaries.prepare(messages)
        said = [examine(each.subject, each.body, dictionaries.find) for each in messages]
        assert [(each.frame_layout().n, each.dictionary) for each in said] == [(30, DIGEST)] * 2
        for each in said:
            dictionaries.on_message(each, True)
        clock.ns += 2 * 3600 * 10**9
        dictionaries.on_message(said[1], True)
        await registry.write(dictionaries.take_changes())
        query = "SELECT used_ns FROM dictionary WHERE device = ?"
        [row] = await registry.fetch(query, ("VID-039",))
        assert tuple(row) == (clock.ns,)


def test_a_body_that_is_a_bomb_is_handled_in_parts_of_the_batch() -> None:
    zeros = seal(bytes(16 << 20), Kind.BUNDLE, 7, 1, "deflate")
    bomb = zeros[:1] + b"\x03" + zeros[2:]
    some = [Stored(seq, f"up.{DEVICE}.b", bomb, 1) for seq in range(1, 8)]
    assert [[each.seq for each in part] for part in parts(some)] == [[1, 2], [3, 4], [5, 6], [7]]
    plain = [Stored(seq, f"up.{DEVICE}.b", bundle(1), 1) for seq in range(1, 8)]
    assert list(parts(plain)) == [plain]
    assert list(parts([])) == []
    assert list(parts([Stored(1, "up.x", b"\x21\x03", 1)])), "garbage is of no size"


def test_what_is_no_dictionary_is_garbage_with_its_place() -> None:
    other = dictionary_subject(digest_of(b"another"))
    with pytest.raises(UnreadableError) as caught:
        examine(f"up.{DEVICE}.{other}", carried(3))
    assert (caught.value.code, caught.value.place) == ("subject", (LANE, 3))
    with pytest.raises(MissingDictionaryError) as missing:
        examine(f"up.{DEVICE}.b", packed(3))
    assert (missing.value.code, missing.value.place) == ("dictionary", None)
    assert missing.value.digest == DIGEST
    with pytest.raises(UnreadableError) as cut:
        examine(f"up.{DEVICE}.b", packed(3)[:24])
    assert not isinstance(cut.value, MissingDictionaryError)


def test_an_expansion_is_held_against_the_bytes_that_were_sent() -> None:
    """What a flood guard is told is what came over the link, not what it became."""
    points = [Point("n", "t" * 200, 1, 1.0)] * 20_000
    message = encode_bundle(points, epoch=7, seq=1)
    names = unseal(message)[1][: 16 << 10]
    small = pack_with(message, names)
    found = examine(f"up.{DEVICE}.b", small, lambda *_: names)
    assert found.expansion.points == 20_000
    assert found.expansion.beyond(len(small)) > 4 << 20
    gateway = examine(f"up.{DEVICE}.b", packed(2), lambda *_: NAMES)
    assert gateway.expansion.beyond(len(packed(2))) == 0, "an honest one is far below"


def test_a_vehicle_is_asked_at_once_and_then_less_and_less_often() -> None:
    book = AwaitedBook()
    for seq, digest in ((1, b"first_"), (2, b"second"), (3, b"first_")):
        book.note("a", digest, STREAM, seq, 5)
    assert book.asks({}, 0.0) == [], "it is not connected"
    links = {"a": 1, "b": 1}
    assert book.asks(links, 1.0) == [("a", b"first_")]
    assert book.asks(links, 2.0) == [("a", b"second")]
    assert book.asks(links, 3.0) == []
    asked = [at for at in range(4, 4000) if ("a", b"second") in book.asks(links, float(at))]
    waits = [later - before for before, later in pairwise(asked)]
    assert asked[0] == 2 + ASK_S
    assert waits[-1] == pytest.approx(ASK_S_MAX, abs=2)
    assert book.asks({"a": 2}, 4001.0) == [("a", b"first_")], "over a new link at once"
    assert book.asks({"a": 3}, 4002.0) == [("a", b"second")]
    assert book.asks({"a": 4}, 4003.0) == [], "not each time that it comes up"
    book.came("a", b"first_")
    assert [row.digest for row in book.missing()] == [b"second"]


def test_what_one_vehicle_may_have_the_hub_wait_for_is_bounded() -> None:
    book = AwaitedBook()
    for number in range(AWAITED_MAX):
        assert book.note("a", number.to_bytes(6, "big"), STREAM, number + 1, 5)
    assert not book.note("a", b"beyond", STREAM, 100, 5)
    assert book.note("a", bytes(6), STREAM, 101, 5) == 2
    assert book.note("b", b"beyond", STREAM, 102, 5)
    assert COPIED_MAX < 100


def test_what_waits_is_taken_up_in_turns() -> None:
    book = AwaitedBook()
    for seq, device in enumerate(("a", "b", "a"), 1):
        book.note(device, b"digest", STREAM, seq, 5)
    assert book.next_here(STREAM) is None
    book.came("a", b"digest")
    book.came("b", b"digest")
    book.came("c", b"digest")
    first, second = book.next_here(STREAM), book.next_here(STREAM)
    assert first is not None
    assert second is not None
    assert {first.device, second.device} == {"a", "b"}
    book.take_changes()
    book.taken(first, first.high)
    assert list(book) == [second]
    put, gone = book.take_changes()
    assert (put.rows, gone.rows) == ([], [(first.device, b"digest".hex(), STREAM)])
    restored = AwaitedBook()
    restored.restore([Awaited(*second.place, 2, 2, 1, 5)])
    assert list(restored.missing())


LATER = (
    "alert",
    "alert_told",
    "alert_silence",
    "alert_notice",
    "alert_position",
    "page_link",
    "page_session",
)


async def test_a_hub_without_dictionaries_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with await Registry.open(path) as registry:
        await registry.write(
            [
                RowChange("DROP TABLE dictionary", [()]),
                RowChange("DROP TABLE awaited_dictionary", [()]),
                *(RowChange(f"DROP TABLE {name}", [()]) for name in LATER),
                RowChange("PRAGMA user_version = 15", [()]),
            ]
        )
    async with await Registry.open(path) as registry:
        assert await registry.fetch("SELECT * FROM dictionary") == []
