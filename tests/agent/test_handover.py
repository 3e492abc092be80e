"""A ledger that is given to another device: what moves, what stays behind, and what a crash leaves."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_agent import handover
from backhaul_agent.errors import LedgerForeignError, LedgerStorageError
from backhaul_agent.handover import device_of, hand_over
from backhaul_agent.ledger import dictionary_rows
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.rows import LedgerChanges, Opening, Outgoing, Staged
from backhaul_agent.ledger.system_events import event
from backhaul_codec import Point, encode_point, hash_of, peek
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary, read_dictionary
from tests.agent.ledgers import open_ledger

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("live", "bulk", "n_gps")


def message(number: int, lane: str = "bulk", *, boot: int = 0) -> Outgoing:
    node = "gps" if lane == "n_gps" else "n"
    body = encode_point(
        Point(node=node, type="t", time=number, value=float(number)), epoch=0, seq=0
    )
    subject = {"bulk": "p.n.t.%", "live": "p.n.t.%", "n_gps": "n.gps.p.gps.t.%"}[lane]
    return Outgoing(lane, subject, body, boot=boot)


async def of_two_epochs(path: Path) -> None:
    """Write a ledger of two epochs: 1 to 4 in the first, 5 to 8 in the second; 1, 2 and 5 are confirmed."""
    ledger = await open_ledger(path, lanes=NAMES)
    await ledger.commit(
        LedgerChanges(messages=[message(n) for n in (1, 2, 3)] + [message(4, "n_gps")])
    )
    await ledger.commit(LedgerChanges(watermarks={"bulk": 2}))

    def word(old: int, lanes: dict[str, int]) -> Outgoing:
        return event("epoch", {"old": old, "new": 43, "why": "x", "lanes": lanes}, 1)

    opening = Opening(43, word)
    await ledger.commit(LedgerChanges(opening=opening, messages=[message(n) for n in (5, 6, 7)]))
    await ledger.commit(LedgerChanges(watermarks={"bulk": 1}))
    await ledger.commit(
        LedgerChanges(messages=[message(8, boot=1), message(9)], staged=[Staged("n", 1, b"staged")])
    )
    await ledger.close()


@pytest.mark.parametrize("nodes", [(), ("gps",)])
async def test_what_is_not_confirmed_goes_on_in_one_chain(
    tmp_path: Path, nodes: tuple[str, ...]
) -> None:
    path = tmp_path / "ledger.db"
    await of_two_epochs(path)
    lanes = Lanes(nodes)
    done = hand_over(path, "VID-002", lanes, iter([42, 43, 99]).__next__)
    assert (done.former, done.epoch, done.moved, done.left) == ("VID-001", 99, 6, 1)
    assert device_of(path) == "VID-002"
    with pytest.raises(LedgerForeignError):
        await open_ledger(path)
    ledger = await open_ledger(path, device="VID-002", lanes=lanes.names)
    assert (ledger.epoch, ledger.closed) == (99, {})
    home = "n_gps" if nodes else "live"
    [gps] = await ledger.read(home, 1, 9)
    assert gps.subject == ("n.gps.p.gps.t.%" if nodes else "p.gps.t.%")
    rows = await ledger.read("bulk", 1, 99)
    assert [peek(row.body).seq for row in rows] == [row.seq for row in rows] == [1, 2, 3, 4, 5]
    assert {peek(row.body).epoch for row in [gps, *rows]} == {99}
    assert [row.boot for row in rows] == [0, 0, 0, 1, 0]
    links = [peek(row.body).link for row in rows]
    assert links[1:3] == [hash_of(row.subject, row.body) for row in rows[:2]]
    assert not any(links[3:]), "linked though it may not leave yet"
    bulk = ledger.lanes["bulk"]
    assert (bulk.watermark, bulk.confirmed, bulk.last_seq, bulk.ready_seq) == (0, 0, 5, 3)
    assert [row.body for row in await ledger.staged()] == [b"staged"]
    await ledger.commit(LedgerChanges(messages=[message(10)]))
    await ledger.close()


async def test_the_new_epoch_begins_with_the_dictionaries_that_messages_are_packed_against(
    tmp_path: Path,
) -> None:
    """The hub has none of this device's."""
    path, body = tmp_path / "ledger.db", b"what bundles have in common"
    subject = dictionary_subject(digest_of(body))
    ledger = await open_ledger(path)
    said = Outgoing("bulk", subject, encode_dictionary(body))
    await ledger.commit(LedgerChanges([said, message(1)], commands=[dictionary_rows.sent(body, 5)]))
    await ledger.commit(LedgerChanges(commands=[dictionary_rows.confirmed(digest_of(body))]))
    await ledger.close()
    done = hand_over(path, "VID-002", Lanes(), iter([99]).__next__)
    assert (done.moved, done.left) == (1, 0)
    ledger = await open_ledger(path, device="VID-002")
    rows = await ledger.read("bulk", 1, 9)
    assert [row.subject for row in rows] == [subject, "p.n.t.%"]
    assert read_dictionary(rows[0].body, digest_of(body)) == body
    assert peek(rows[1].body).link == hash_of(rows[0].subject, rows[0].body)
    [row] = (await dictionary_rows.load(ledger._db)).values()
    assert row == (body, 99, 1, False, 5)
    await ledger.close()


@pytest.mark.parametrize("body", ["x'00'", "zeroblob(20000)", "x''", "7"])
async def test_a_damaged_dictionary_stops_no_handover_and_is_not_sent(
    tmp_path: Path, body: str
) -> None:
    """Under its digest the hub would take in none of these bytes, nor any that another vehicle sends."""
    path, whole = tmp_path / "ledger.db", b"what bundles have in common"
    ledger = await open_ledger(path)
    said = Outgoing("bulk", dictionary_subject(digest_of(whole)), encode_dictionary(whole))
    await ledger.commit(LedgerChanges([said], commands=[dictionary_rows.sent(whole, 5)]))
    await ledger._db.execute(f"UPDATE dictionaries SET body = {body}")
    await ledger.commit(LedgerChanges([message(1)]))
    await ledger.close()
    assert hand_over(path, "VID-002", Lanes(), iter([99]).__next__).moved == 1
    ledger = await open_ledger(path, device="VID-002")
    assert [row.subject for row in await ledger.read("bulk", 1, 9)] == ["p.n.t.%"]
    await ledger.close()


async def test_a_handover_that_is_cut_short_has_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    await of_two_epochs(path)
    before = dump(path)

    def fails(*_: object) -> bytes:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(handover, "hash_of", fails)
    with pytest.raises(LedgerStorageError, match="handing over"):
        hand_over(path, "VID-002", Lanes(), iter([99]).__next__)
    assert dump(path) == before


def dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()
