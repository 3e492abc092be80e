"""What OUT alone holds, and epochs that the hub alone knows: taken into the ledger before anything is emptied."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import msgspec
import pytest

from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.ledger.rows import Inward, LedgerChanges
from backhaul_agent.uplink.adoption import Adoption, HeldLane
from backhaul_agent.uplink.confirmations import Claim
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.lane import Lane
from backhaul_agent.uplink.out_stream import OutStream
from backhaul_codec import Point, chain, decode, encode_frame, hash_of
from backhaul_codec.wire.envelope import NO_LINK
from tests.agent.lane_rig import CONFIG, Connection, Rig, rig
from tests.agent.ledgers import opening
from tests.support.waiting import until

__all__ = ["rig"]  # a fixture


async def test_a_former_epoch_of_more_than_half_of_out_goes_on_as_the_hub_confirms_it(
    rig: Rig,
) -> None:
    """Of an epoch that is over the hub speaks when it is asked for the time, not in IN."""
    await rig.commit(4)
    await rig.ledger.commit(LedgerChanges(opening=opening()))
    config = msgspec.structs.replace(
        CONFIG, streams=msgspec.structs.replace(CONFIG.streams, out_bulk_bytes_max=2)
    )
    lane = Lane("bulk", rig.ledger, rig.writer, config, rig.clock)
    rig.writer._on_commit = lane.on_commit
    words = EpochWords(rig.ledger, rig.writer, rig.clock, [lane])
    async with rig.connected(Connection(rig.leaf), lane):
        for seq in range(1, 5):
            await until(partial(rig.leaf.has, seq))
            former = rig.ledger.lane("bulk", 42)
            assert former is not None
            own = await rig.ledger.hash_at(former, seq)
            words.heard({42: {"bulk": (4, seq)}}, {42: {"bulk": ((own or b"").hex(), 0)}})


class Copied:
    """A ledger that was put back: OUT holds three messages of an epoch that it does not know."""

    def __init__(self, rig: Rig, *, linked: bool = True) -> None:
        self.rig = rig
        link = b"before"
        self.hashes: list[bytes] = []
        for seq in (4, 5, 6):
            body = encode_frame([Point("n", "t", seq, float(seq))], epoch=44, seq=seq)
            body = chain(body, epoch=44, seq=seq, link=link if linked else NO_LINK)
            rig.leaf.stored.append(body)
            link = hash_of("f.n", body)
            self.hashes.append(link)

    async def taken_in(self) -> list[int]:
        """Return which of the unknown epoch are in the ledger."""
        return [row.seq for row in await self.rig.ledger.read("bulk", 1, 9, 44)]


async def test_what_out_alone_holds_is_in_the_ledger_before_out_is_emptied(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.commit(2)
    copied, taken = Copied(rig), list[list[int]]()
    request = rig.leaf.request

    async def watched(subject: str, payload: bytes) -> bytes:
        if "PURGE" in subject:
            taken.append(await copied.taken_in())
        return await request(subject, payload)

    monkeypatch.setattr(rig.leaf, "request", watched)
    rig.lane.on_passed(50)
    async with rig.connected(Connection(rig.leaf)):
        await until(lambda: taken)
    assert taken[0] == [4, 5, 6]


@pytest.mark.parametrize(
    ("theirs", "linked", "taken"),
    [(False, True, [6]), (True, True, [4, 5, 6]), (False, False, [4, 5, 6])],
)
async def test_of_what_out_alone_holds_only_what_the_hub_has_for_certain_is_left_out(
    rig: Rig, theirs: bool, linked: bool, taken: list[int]
) -> None:
    """The hub has a message at seq 5: ours, or another machine's, or one that says nothing of what is before it."""
    copied = Copied(rig, linked=linked)
    out = OutStream(JetStream(rig.leaf.request), rig.lane.stream)
    adoption = Adoption("bulk", rig.ledger, rig.writer)
    await adoption.look(out)
    assert adoption.strangers == {44}
    assert adoption.heard(44, HeldLane(5, b"theirs" if theirs else copied.hashes[1]))
    await adoption.take_in(out)
    assert await copied.taken_in() == taken


@pytest.mark.parametrize(
    ("heard", "everything", "words"),
    [
        ([], True, [44]),
        ([HeldLane(0, None)], False, [44]),
        ([HeldLane(6, None)], False, [44]),
        ([HeldLane(0, None, over=True)], False, []),
        ([HeldLane(0, None, over=True)], True, []),
    ],
    ids=["OUT is emptied", "of the hub's word", "held", "known to be over", "emptied and known"],
)
async def test_of_an_epoch_that_out_alone_knows_it_is_said_once_that_it_is_over(
    rig: Rig, heard: list[HeldLane], everything: bool, words: list[int]
) -> None:
    """Nobody else will, and the hub would take it for the current one where its messages come last."""
    copied = Copied(rig)
    out = OutStream(JetStream(rig.leaf.request), rig.lane.stream)
    for _ in range(2):  # as for another lane, or at another connection
        adoption = Adoption("bulk", rig.ledger, rig.writer)
        await adoption.look(out)
        for held in heard:
            # Held as far as 6: the hub has it all.
            adoption.heard(44, held._replace(hash=copied.hashes[2] if held.seq else None))
        await adoption.take_in(out, everything=everything)
    await rig.writer.set_aside([], [])
    said = []
    for row in await rig.ledger.read("live", 1, 9):
        if row.subject == "e.epoch":
            value: Any = decode(row.body, node="", type="epoch").points[0].value
            body = json.loads(value.data)
            said.append((body["old"], body["new"], body["lanes"]))
    assert said == [(old, rig.ledger.epoch, {}) for old in words]


async def test_what_the_hub_says_of_an_unknown_epoch_that_is_over_is_heard(rig: Rig) -> None:
    Copied(rig)
    await rig.lane.adoption.look(OutStream(JetStream(rig.leaf.request), rig.lane.stream))
    rig.lane.on_watermark(44, Claim(0, None, 2))
    assert not rig.writer.gate.over
    rig.lane.on_watermark(44, Claim(0, None, 1))
    assert rig.writer.gate.over == {44}


async def test_of_a_former_epoch_of_its_own_the_ledger_says_no_second_time_that_it_is_over(
    rig: Rig,
) -> None:
    assert not rig.writer.gate.end(rig.ledger.epoch)
    Copied(rig)
    out = OutStream(JetStream(rig.leaf.request), rig.lane.stream)
    await Adoption("bulk", rig.ledger, rig.writer).take_in(out, everything=True)
    rig.writer.gate.over.clear()  # as in the next run of the agent
    assert not rig.writer.gate.end(44)


async def test_what_was_to_be_taken_in_as_the_link_fell_is_taken_in_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes it only after the next connection has looked at OUT again."""
    copied = Copied(rig)
    out = OutStream(JetStream(rig.leaf.request), rig.lane.stream)
    adoption = Adoption("bulk", rig.ledger, rig.writer)
    commit, slow = rig.ledger.commit, asyncio.Event()
    waiting = asyncio.Event()

    async def committed(changes: LedgerChanges) -> list[int]:
        waiting.set()
        await slow.wait()
        return await commit(changes)

    monkeypatch.setattr(rig.ledger, "commit", committed)
    taking = asyncio.create_task(adoption.take_in(out, everything=True))
    await waiting.wait()
    taking.cancel()
    await asyncio.wait([taking])
    taking = asyncio.create_task(adoption.take_in(out, everything=True))
    await until(lambda: rig.writer._deferred._owed.done)
    slow.set()
    await asyncio.wait_for(taking, 5)
    assert await copied.taken_in() == [4, 5, 6]
    assert not rig.writer.counters.last_error


async def test_an_epoch_that_the_hub_speaks_of_meanwhile_is_taken_in_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Copied(rig)
    for seq in (1, 2):
        rig.leaf.stored.append(encode_frame([Point("n", "t", seq, 1.0)], epoch=45, seq=seq))
    out = OutStream(JetStream(rig.leaf.request), rig.lane.stream)
    adoption = Adoption("bulk", rig.ledger, rig.writer)
    await adoption.look(out)
    assert adoption.strangers == {44, 45}
    assert adoption.heard(45, HeldLane(0, None))
    apply = rig.writer.apply

    async def applied(changes: Inward) -> None:
        adoption.heard(44, HeldLane(0, None))
        await apply(changes)

    monkeypatch.setattr(rig.writer, "apply", applied)
    await adoption.take_in(out)
    while adoption.due:
        await adoption.take_in(out)
    assert await copied.taken_in() == [4, 5, 6]
