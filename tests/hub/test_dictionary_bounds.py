"""Vehicles' dictionaries at the hub, without a server: what is bounded, what is garbage, and who is asked when."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec import Kind, Point, encode_bundle
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import (
    digest_of,
    pack_with,
)
from backhaul_codec.wire.envelope import seal, unseal
from backhaul_hub.continuity.examine import MissingDictionaryError, UnreadableError, examine
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
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
from backhaul_hub.uplink.dictionary_bounds import (
    IN_USE_NS,
    KEPT_MAX,
    REFERRED_MAX,
    DictionaryKey,
    choose,
)
from tests.hub.packed_bundles import DIGEST, NAMES, bundle, carried, packed
from tests.support.hub_db_tables import tables_after
from tests.support.hub_sync import FakeClock

from .up_stream import DEVICE, LANE, STREAM

if TYPE_CHECKING:
    from pathlib import Path


def test_the_one_that_was_used_longest_ago_makes_room() -> None:
    now_ns = 2 * IN_USE_NS
    uses = {bytes([number] * 6): number for number in range(KEPT_MAX)}
    uses[bytes(6)] = now_ns
    new = (
        DictionaryKey("a", b"newest"),
        DictionaryKey("a", b"second"),
        DictionaryKey("b", b"newest"),
    )
    nothing_older = {"a": now_ns}
    choice = choose(new, {"a": uses}, nothing_older, now_ns)
    assert choice.keep == list(new)
    assert choice.drop == [("a", bytes([1] * 6)), ("a", bytes([2] * 6))]
    in_use = dict.fromkeys(uses, now_ns - IN_USE_NS + 1)
    choice = choose([*new[:1], DictionaryKey("a", bytes(6))], {"a": in_use}, nothing_older, now_ns)
    assert choice == ([], [], {new[0]}), "what is known already needs no room"


def test_one_that_messages_in_up_may_refer_to_makes_no_room() -> None:
    now_ns, day_ns = 100 * IN_USE_NS, 86_400 * 10**9
    uses = {number.to_bytes(6, "big"): number * day_ns for number in range(KEPT_MAX)}
    new = DictionaryKey("a", b"newest")
    for oldest_day, dropped in ((0, 0), (1, 1), (3, 1)):
        choice = choose([new], {"a": uses}, {"a": oldest_day * day_ns}, now_ns)
        assert choice == ([new], [("a", bytes(6))][:dropped], set()), oldest_day
    many = {number.to_bytes(6, "big"): number * day_ns for number in range(REFERRED_MAX)}
    assert choose([new], {"a": many}, {"a": 0}, 3 * REFERRED_MAX * day_ns).refuse == {new}
    choice = choose([new], {"a": many}, {"a": 100 * day_ns}, 3 * REFERRED_MAX * day_ns)
    assert [int.from_bytes(key.digest, "big") for key in choice.drop] == list(range(100))
    assert choice.keep == [new]


class Kept(JetStreamApi):
    """hub.db and a DICT that takes everything."""

    def __init__(self) -> None:
        self.published: list[str] = []

    async def publish(self, subject: str, body: bytes, *_: Any) -> dict[str, Any]:
        self.published.append(subject)
        return {}

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"state": {}}


async def test_the_memory_is_bounded_and_what_fell_out_of_it_is_found_in_hub_db(
    tmp_path: Path,
) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        api, clock = Kept(), FakeClock()
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


async def test_a_hub_without_dictionaries_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with await Registry.open(path) as registry:
        await registry.write(
            [
                *(RowChange(f"DROP TABLE {name}", [()]) for name in tables_after(15)),
                RowChange("PRAGMA user_version = 15", [()]),
            ]
        )
    async with await Registry.open(path) as registry:
        assert await registry.fetch("SELECT * FROM dictionary") == []
