"""What older versions wrote is read, and goes on: messages, a ledger, a hub.db (see make.py)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.ledger.rows import CorrectedMessage, LedgerChanges
from backhaul_agent.ledger.schema import SCHEMA_VERSION
from backhaul_codec import chain, check, decode, hash_of, peek, restamp
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.protocol.push import beside_subject, push_subject, terse, told
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.envelope import NO_LINK
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_hub.continuity.chain import Fork, Watermark
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import Explained
from backhaul_hub.db import migrations as schema
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_lanes, read_position
from tests.agent.ledgers import open_ledger, outgoing

from .clock_words import spoken
from .make import HERE, plain

if TYPE_CHECKING:
    from pathlib import Path


def messages(version: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / f"messages-{version}.json").read_text())
    return found


def restore(name: str, path: Path) -> Path:
    """Make a database of a golden file."""
    with closing(sqlite3.connect(path)) as made:
        made.executescript((HERE / f"{name}.sql").read_text())
    return path


@pytest.mark.parametrize(
    "golden",
    [pytest.param(each, id=f"{v} {each['name']}") for v in (1, 2) for each in messages(v)],
)
def test_a_message_is_read(golden: dict[str, Any]) -> None:
    message = bytes.fromhex(golden["message"])
    header = peek(message)
    assert tuple(header) == (
        header.kind, golden["epoch"], golden["seq"], golden["raw_len"], bytes.fromhex(golden["link"]),
    )  # fmt: skip
    assert header.kind.name == golden["kind"]
    assert hash_of(golden["subject"], message).hex() == golden["hash"]
    found = decode(message, node="battery", type="limit", key="upper").points
    if header.kind.name == "FRAME":
        assert [plain(point) for point in found] == golden["points"]
    else:
        assert [plain(point)[3:] for point in found] == [each[3:] for each in golden["points"]]
    check(message)


@pytest.mark.parametrize("version", [1, 2])
def test_messages_are_read_together(version: int) -> None:
    golden = messages(version)
    batch = decode_columns(
        [bytes.fromhex(each["message"]) for each in golden],
        subjects=[each["subject"] for each in golden],
    )
    assert batch.num_rows == sum(len(each["points"]) for each in golden)


def test_a_body_is_the_same_in_both_versions() -> None:
    for one, two in zip(messages(1), messages(2), strict=True):
        first, second = bytes.fromhex(one["message"]), bytes.fromhex(two["message"])
        assert restamp(second, epoch=one["epoch"], seq=one["seq"]) == first
        link = bytes.fromhex(two["link"])
        assert chain(first, epoch=two["epoch"], seq=two["seq"], link=link) == second


def test_messages_of_version_2_are_a_chain() -> None:
    link = NO_LINK.hex()
    for each in messages(2):
        assert each["link"] == link
        link = each["hash"]


def test_a_bundle_a_dictionary_and_what_is_packed_against_it_are_read() -> None:
    reader, link = PlainReader(), NO_LINK.hex()
    golden = json.loads((HERE / "packed-2.json").read_text())
    assert [each["kind"] for each in golden] == ["BUNDLE", "DICTIONARY", "BUNDLE"]
    assert [bytes.fromhex(each["message"])[1] for each in golden] == [1, 1, 3]
    for each in golden:
        message = bytes.fromhex(each["message"])
        assert peek(message).link.hex() == link
        link = hash_of(each["subject"], message).hex()
        assert link == each["hash"]
        told = reader.take(parse_uplink(f"up.VID-001.{each['subject']}"), message)
        check(told)
        if each["points"]:
            assert [plain(point) for point in decode(told).points] == each["points"]


def test_words_beside_the_streams_are_said_and_read_as_ever() -> None:
    golden = json.loads((HERE / "beside-1.json").read_text())
    token = "sxYxAB3Ixxx7Wd1Mo"
    assert push_subject("VID-001", token, "f.battery") == golden["pushed"]
    assert beside_subject("VID-001", token, "k.bulk") == golden["said"]
    for each in golden["watermarks"]:
        (subject, body), (short, said) = each["full"], each["terse"]
        assert terse(subject, body.encode()) == (short, bytes.fromhex(said))
        assert told(short, bytes.fromhex(said)) == (subject, body.encode())


async def test_the_clocks_words_are_said_and_heard_as_ever_at_both_ends() -> None:
    golden = json.loads((HERE / "clock-1.json").read_text())
    assert await spoken(golden) == golden


async def test_a_ledger_of_schema_3_goes_on_and_its_chains_begin_at_its_last_messages(
    tmp_path: Path,
) -> None:
    path = restore("ledger-3", tmp_path / "ledger.db")
    before = sqlite3.connect(path).execute("SELECT seq, body FROM messages ORDER BY id").fetchall()
    ledger = await open_ledger(path, epoch=lambda: 44)
    try:
        assert (ledger.epoch, ledger.epochs) == (43, {42, 43})
        live, bulk, former = ledger.lanes["live"], ledger.lanes["bulk"], ledger.closed["bulk", 42]
        assert [(e.last_seq, e.ready_seq, e.watermark) for e in (live, bulk, former)] == [
            (4, 2, 0), (2, 2, 0), (3, 3, 1),
        ]  # fmt: skip
        owed = await ledger.read("bulk", 1, 9, 42)
        assert [(row.seq, row.body) for row in owed] == before[:2]
        assert [row.intact for row in await ledger.staged()] == [True]
        assert await ledger.hash_at(former, 3) == hash_of("f.battery", before[1][1])
        assert not await ledger.is_linked(former, 3)

        await ledger.commit(LedgerChanges(messages=[outgoing(), outgoing("live")]))
        new = (await ledger.read("bulk", 1, 9))[-1]
        assert peek(new.body).link == hash_of("f.battery", before[-1][1])
        assert [bool(peek(row.body).link) for row in await ledger.read("live", 1, 9)] == [False] * 5
        assert live.ready_seq == 2

        # Its time is known: what waited leaves, linked to what stands before it.
        [pending] = await ledger.pending((), 9)
        await ledger.commit(LedgerChanges(settled=[CorrectedMessage(pending.id, None)]))
        rows = await ledger.read("live", 1, 9)
        assert [row.body for row in rows[:2]] == [before[2][1], before[3][1]]
        for first, second in pairwise(rows[1:]):
            assert peek(second.body).link == hash_of(first.subject, first.body)
        assert live.ready_seq == live.last_seq == 5
    finally:
        await ledger.close()
    with closing(sqlite3.connect(path)) as made:
        assert made.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    again = await open_ledger(path)
    assert again.lanes["live"].chain == live.chain
    await again.close()


async def test_a_hub_db_of_schema_9_goes_on_with_its_lanes(tmp_path: Path) -> None:
    path = restore("hub-9", tmp_path / "hub.db")
    async with await Registry.open(path) as registry:
        lanes = await read_lanes(registry)
        assert list(await read_devices(registry)) == ["VID-001"]
        assert await read_position(registry, "UP_00") == ReadPosition(
            "2026-01-31T10:00:00Z", 9, 1, 77, 3
        )
    with closing(sqlite3.connect(path)) as made:
        assert made.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)
    key = LaneKey("VID-001", "bulk", 42)
    state = lanes[key]
    assert (state.held, state.aged) == (RangeSet([(1, 5), (9, 9)]), RangeSet([(1, 2)]))
    assert (state.receipts, state.said, state.messages) == ([Explained(6, 6, "evicted")], 11, 7)
    continuity = Continuity()
    continuity.restore(lanes)
    # Of what came before nothing is known but that it came: it counts, and new links are taken as they come.
    live = LaneKey("VID-001", "live", 42)
    assert continuity.told_of(live) == Watermark(4)
    continuity.arrived(live, 5, 10, 200, link=b"before", own=b"fifth.")
    assert continuity.told_of(live) == Watermark(5, b"fifth.", Fork.NONE)
    continuity.arrived(key, 7, 10, 200, link=b"sixth.", own=b"sevent")
    continuity.arrived(key, 8, 10, 200, link=b"sevent", own=b"eighth")
    assert continuity.told_of(key) == Watermark(9)
