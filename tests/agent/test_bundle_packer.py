"""Dictionaries on the vehicle: when one is worth sending, when it is used, and what the hub's word changes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.commit import bundle_packer
from backhaul_agent.commit.participant import Draft
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ledger import dictionary_rows
from backhaul_agent.ledger.rows import Inbound, LedgerChanges, Outgoing
from backhaul_codec import Point, decode, encode_bundle, encode_frame
from backhaul_codec.wire.dictionaries import (
    DICTIONARY_BYTES_MAX,
    digest_of,
    is_packed,
    plain,
    read_dictionary,
)
from backhaul_codec.wire.envelope import unseal
from tests.agent.ledgers import FailingDisk, open_ledger, opening
from tests.agent.packing_vehicle import DAY, NOW, Vehicle, bundle, points_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


ROOMS = ["kitchen window", "garage", "upper floor, west"]


@pytest.fixture
async def vehicle(tmp_path: Path) -> AsyncIterator[Vehicle]:
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        yield Vehicle(ledger)
    finally:
        await ledger.close()


async def test_a_dictionary_is_sent_once_and_used_when_the_hub_has_confirmed_it(
    vehicle: Vehicle,
) -> None:
    first = await vehicle.speak(30)
    assert first.count("d") == 1
    assert set(first) == {"b", "d"}, "not packed before it is confirmed"
    await vehicle.confirm()
    assert await vehicle.speak(200) == ["b*"] * 200
    rows = await vehicle.ledger.read("bulk", 1, 999)
    [brought] = [row for row in rows if row.subject.startswith("d.")]
    body = read_dictionary(brought.body, bytes.fromhex(brought.subject[2:]))
    for second, row in enumerate(row for row in rows if row.subject == "b"):
        read = decode(plain(row.body, {digest_of(body): body}.get))
        assert sorted(read.points, key=repr) == sorted(points_at(second), key=repr)
    packed = [len(row.body) for row in rows if is_packed(row.body)]
    before = [len(row.body) for row in rows if row.subject == "b" and not is_packed(row.body)]
    assert max(packed) < 0.6 * min(before)


async def test_the_first_dictionary_goes_with_the_second_bundle(vehicle: Vehicle) -> None:
    """Each bundle without one costs as much as three with one."""
    assert await vehicle.speak(2) == ["b", "b", "d"]
    await vehicle.confirm()
    assert await vehicle.speak(1) == ["b*"]


async def test_a_first_bundle_that_is_like_no_other_puts_the_dictionary_off_by_one(
    vehicle: Vehicle,
) -> None:
    alone = encode_bundle([Point("van", "odometer", NOW, 81_456.0)], epoch=0, seq=0)
    assert await vehicle.commit(Outgoing("bulk", "b", alone)) == ["b"]
    assert await vehicle.speak(2) == ["b", "b", "d"]


async def test_single_readings_have_no_dictionary_of_their_own_at_once(vehicle: Vehicle) -> None:
    """It would take longer to pay than the fuller one that comes ten seconds later."""
    said = []
    for second in range(12):
        body = encode_bundle([Point("van", "speed", NOW + second, 7.5 + second)], epoch=0, seq=0)
        said += await vehicle.commit(Outgoing("bulk", "b", body))
    assert said == ["b"] * 12


async def test_where_nodes_speak_in_turn_a_fuller_one_follows(vehicle: Vehicle) -> None:
    """The first one knows two of them."""
    names = [f"{number * 7919:x} room" for number in range(4)]
    said = []
    for turn in range(30):
        said += await vehicle.speak(1, said=names[turn % len(names)])
        await vehicle.confirm()
    assert said[:3] == ["b", "b", "d"]
    assert said.count("d") == 2
    known = [row.body for row in vehicle.packer._known.values()]
    assert all(any(name.encode() in body for body in known) for name in names)


async def test_a_dictionary_that_would_save_too_little_is_not_sent(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_packer, "WORTH_PART", 0.05)
    assert "d" not in await vehicle.speak(200)


@pytest.mark.slow
async def test_trials_have_growing_pauses(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_packer, "WORTH_PART", 0.0)
    due = []
    for _ in range(800):
        await vehicle.speak(1)
        due.append(vehicle.packer._trial_due_s)
    trials = sorted({each for each in due if each is not None})
    pauses = [later - earlier for earlier, later in pairwise(trials)]
    assert len(pauses) >= 3
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(pauses))


async def test_names_that_change_get_a_dictionary_of_their_own(vehicle: Vehicle) -> None:
    await vehicle.learned()
    vehicle.second += 600
    said = await vehicle.speak(40, said="other")
    assert said.count("d") == 1
    await vehicle.confirm()
    assert await vehicle.speak(3, said="other") == ["b*"] * 3
    assert await vehicle.speak(3) == ["b*"] * 3, "the first one serves still"


async def test_what_waits_for_the_time_is_not_packed(vehicle: Vehicle) -> None:
    """Its stamps are put right later, in a body that must be open for that."""
    await vehicle.learned()
    assert await vehicle.commit(bundle(1, boot=5)) == ["b"]


async def test_frames_of_other_writers_are_not_packed(vehicle: Vehicle) -> None:
    await vehicle.learned()
    frame = encode_frame([Point("n", "t", 1, 1.0)], epoch=0, seq=0)
    assert await vehicle.commit(Outgoing("bulk", "f.n", frame)) == ["f"]


async def test_no_dictionary_is_sent_with_the_first_messages_of_an_epoch(vehicle: Vehicle) -> None:
    """Where it stands would not be known; with the next ones it is."""
    digest = await vehicle.learned()
    vehicle.asks(digest)
    assert await vehicle.commit(changes=LedgerChanges(opening=opening())) == []
    assert vehicle.packer.due_s() is not None
    assert await vehicle.commit() == ["d"]
    assert vehicle.packer._known[digest][1:4] == (43, 1, False)


async def test_a_dictionary_that_the_hub_lost_is_sent_again_and_rests_until_it_is_confirmed(
    vehicle: Vehicle,
) -> None:
    digest = await vehicle.learned()
    assert await vehicle.speak(1) == ["b*"]
    vehicle.asks(digest)
    assert vehicle.packer.due_s() is not None
    assert await vehicle.speak(1) == ["b", "d"]
    assert vehicle.packer.due_s() is None
    assert await vehicle.speak(2) == ["b", "b"]
    await vehicle.confirm()
    assert await vehicle.speak(2) == ["b*", "b*"]


async def test_a_word_that_is_read_again_sends_nothing(vehicle: Vehicle) -> None:
    digest = await vehicle.learned()
    vehicle.asks(digest, fresh=False)
    vehicle.asks(b"\1" * 6, fresh=False)
    assert await vehicle.commit() == []


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"digest": 5}', b'{"digest": "00"}', b'{"digest": "0102030405zz"}']
)
async def test_a_word_that_is_none_is_refused(vehicle: Vehicle, data: bytes) -> None:
    with pytest.raises(ValueError, match="digest"):
        vehicle.packer.on_message(Inbound(["s", "dictionary"], data, True), LedgerChanges())


async def test_a_dictionary_that_nobody_has_is_refused_with_its_digest(vehicle: Vehicle) -> None:
    with pytest.raises(ValueError, match="010101010101, which is not here"):
        vehicle.asks(b"\1" * 6)


async def test_after_a_restart_it_goes_on_with_what_it_had(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "ledger.db")
    vehicle = Vehicle(ledger)
    await vehicle.learned()
    await vehicle.speak(1)
    await ledger.close()
    again = Vehicle(await open_ledger(tmp_path / "ledger.db"))
    try:
        assert await again.speak(1) == ["b*"]
        await again.ledger._db.execute("UPDATE dictionaries SET body = x'00'")
        assert await dictionary_rows.load(again.ledger._db) == {}, (
            "damaged: it is not this digest's"
        )
    finally:
        await again.ledger.close()


async def test_one_that_was_not_confirmed_before_a_restart_is_not_used(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "ledger.db")
    vehicle = Vehicle(ledger)
    await vehicle.speak(20)
    await ledger.close()
    again = Vehicle(await open_ledger(tmp_path / "ledger.db"))
    try:
        assert await again.speak(2) == ["b", "b"]
        await again.confirm()
        assert await again.speak(1) == ["b*"]
    finally:
        await again.ledger.close()


async def test_a_disk_that_refuses_loses_no_dictionary(tmp_path: Path) -> None:
    disk = FailingDisk()
    vehicle = Vehicle(await open_ledger(tmp_path / "ledger.db", opener=disk))
    try:
        digest = await vehicle.learned()
        vehicle.asks(digest)
        draft = Draft(LedgerChanges(), 50.0)
        vehicle.packer.contribute(draft)
        assert [each.subject for each in draft.changes.messages] == [f"d.{digest.hex()}"]
        vehicle.packer.put_back(RefusedError(Code.STORAGE, "full"))
        assert await vehicle.commit() == ["d"]
    finally:
        await vehicle.ledger.close()


async def test_when_all_places_are_taken_the_one_unused_for_longest_goes_if_at_all(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_packer, "KEPT_MAX", 2)
    first = await vehicle.learned()
    unused = bytes(range(100))
    vehicle.packer.learn(unused, vehicle.ledger.epoch, 1)
    vehicle.second += 600
    assert "d" not in await vehicle.speak(40, said="other"), "the hub would refuse it"
    vehicle.second += 7200
    vehicle.now_ns += 8 * DAY
    assert "d" in await vehicle.speak(40, said="third")
    assert first in vehicle.packer._known
    assert vehicle.packer.lookup(digest_of(unused)) is None
    assert set(await dictionary_rows.load(vehicle.ledger._db)) == set(vehicle.packer._known)


@pytest.mark.parametrize("fails_again", [False, True], ids=["goes on", "fails again"])
async def test_a_drop_that_was_written_by_a_commit_that_failed_stops_nothing(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch, fails_again: bool
) -> None:
    """The next commit reads the ledger back, and finds the dictionary gone that it was about to drop."""
    monkeypatch.setattr(bundle_packer, "KEPT_MAX", 1)
    unused = bytes(range(100))
    vehicle.packer.learn(unused, vehicle.ledger.epoch, 0)
    await vehicle.commit()
    await vehicle.commit()
    vehicle.now_ns += 8 * DAY
    vehicle.packer._new = unseal(bundle(0).body)[1]
    draft = Draft(LedgerChanges(), 0.0)
    vehicle.packer.contribute(draft)
    assert dictionary_rows.dropped(digest_of(unused)) in draft.changes.commands
    await vehicle.ledger.commit(draft.changes)
    vehicle.packer.put_back(RefusedError(Code.STORAGE, "full"))
    vehicle.ledger._uncertain = True
    if fails_again:
        await vehicle.ledger._load()
    assert await vehicle.commit(bundle(1)) == ["b"] + ["d"] * (not fails_again)
    assert vehicle.packer.lookup(digest_of(unused)) is None
    assert set(await dictionary_rows.load(vehicle.ledger._db)) == set(vehicle.packer._known)
    assert await vehicle.commit(bundle(2)) == ["b"]


async def test_one_that_this_very_commit_uses_makes_no_room(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_packer, "KEPT_MAX", 1)
    digest = await vehicle.learned()
    vehicle.now_ns += 8 * DAY
    vehicle.packer._new = b"names of others"
    assert await vehicle.commit(bundle(vehicle.second)) == ["b*"]
    assert list(await dictionary_rows.load(vehicle.ledger._db)) == [digest]


async def test_one_that_messages_are_packed_against_which_the_hub_lacks_makes_no_room(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub may have lost it, or be another one by then, and nobody else could give it to it."""
    monkeypatch.setattr(bundle_packer, "KEPT_MAX", 1)
    first = await vehicle.learned()
    assert await vehicle.speak(1) == ["b*"]
    again = Vehicle(vehicle.ledger)
    again.now_ns += 8 * DAY
    for each in (vehicle, again):  # in this run, and in the next one
        each.now_ns = NOW + 8 * DAY
        each.packer._new = b"names of others"
        assert await each.commit() == []
        assert each.packer.lookup(first) is not None
    await vehicle.confirm()
    again.packer._new = b"names of others"
    assert await again.commit() == ["d"]
    assert again.packer.lookup(first) is None


async def test_use_is_noted_once_a_day(vehicle: Vehicle) -> None:
    digest = await vehicle.learned()
    vehicle.now_ns += DAY + 1
    draft = Draft(LedgerChanges(messages=[bundle(1), bundle(2)]), 99.0)
    vehicle.packer.contribute(draft)
    noted = [each for each in draft.changes.commands if "used_ns" in each.sql]
    assert noted == [dictionary_rows.used(digest, vehicle.now_ns)]


async def test_what_out_brought_is_kept_and_used_once_its_epoch_is_confirmed(
    vehicle: Vehicle,
) -> None:
    body = unseal(bundle(0).body)[1]
    vehicle.packer.learn(body, vehicle.ledger.epoch, 2)
    assert vehicle.packer.lookup(digest_of(body)) == body
    assert vehicle.packer.due_s() is not None
    assert await vehicle.commit(bundle(1)) == ["b"]
    assert vehicle.packer.due_s() is None
    assert (await dictionary_rows.load(vehicle.ledger._db))[digest_of(body)].seq == 2
    await vehicle.commit(bundle(2))
    await vehicle.confirm()
    assert await vehicle.commit(bundle(3)) == ["b*"]


async def test_what_out_brings_while_the_disk_writes_is_written_with_the_next_commit(
    vehicle: Vehicle,
) -> None:
    """Else it is gone after a restart, and OUT may have been emptied by then."""
    body = unseal(bundle(0).body)[1]
    draft = Draft(LedgerChanges(messages=[bundle(0)]), 0.0)
    vehicle.packer.contribute(draft)
    vehicle.packer.learn(body, vehicle.ledger.epoch, 1)
    await vehicle.ledger.commit(draft.changes)
    vehicle.packer.committed(draft)
    assert vehicle.packer.lookup(digest_of(body)) == body
    assert vehicle.packer.due_s() is not None
    await vehicle.commit()
    assert list(await dictionary_rows.load(vehicle.ledger._db)) == [digest_of(body)]
    assert vehicle.packer.due_s() is None


async def test_what_out_brought_from_beyond_the_ledgers_end_holds_up_no_other(
    vehicle: Vehicle,
) -> None:
    """The hub may hold all of it: then the ledger takes none of it in, and hears of no seq beyond its own."""
    body = unseal(bundle(0).body)[1]
    await vehicle.commit(bundle(0))
    await vehicle.commit(changes=LedgerChanges(opening=opening()))
    vehicle.packer.learn(body, 42, 9)
    assert await vehicle.commit(bundle(1)) == ["b"]
    assert await vehicle.commit(bundle(2)) == ["b"]
    await vehicle.ledger.commit(LedgerChanges(former={("bulk", 42): 1}))
    assert await vehicle.commit(bundle(3)) == ["b*"]
    assert vehicle.packer.status()["dictionaries_unconfirmed"] == 0


def test_nodes_that_speak_in_turn_are_all_in_the_dictionary() -> None:
    bodies = [
        unseal(encode_bundle([Point(name, f"of {name}", 1, 1.0)], epoch=0, seq=0))[1]
        for name in 2 * ROOMS
    ]
    joined = bundle_packer.joined(bodies)
    assert all(name.encode() in joined for name in ROOMS)
    assert len(joined) < sum(map(len, bodies))
    large = [bytes([n]) * (DICTIONARY_BYTES_MAX // 2 + 1) for n in range(3)]
    assert bundle_packer.joined(large) == large[-1]


@pytest.mark.slow
async def test_other_work_has_a_dictionary_of_its_own_soon_and_not_for_ever(
    vehicle: Vehicle,
) -> None:
    """A gateway that is given other nodes, between two trials that are an hour apart."""
    await vehicle.learned()
    await vehicle.speak(
        700
    )  # through the first pauses between trials: the next one is ten minutes away
    assert len(vehicle.packer._known) == 1
    said = await vehicle.speak(4, said="boiler")
    assert said.count("d") == 1
    await vehicle.confirm()
    assert await vehicle.speak(1, said="boiler") == ["b*"]
    sent = 0
    for turn in range(40):
        sent += (await vehicle.speak(20, said=f"pump{turn}")).count("d")
        await vehicle.confirm()
    assert 1 <= sent <= 8
