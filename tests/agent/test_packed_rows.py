"""Packed messages in OUT that a ledger from a copy does not know: read, compared and taken in all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_agent.commit.framer import pack
from backhaul_agent.commit.writer import Writer
from backhaul_agent.ledger import dictionary_rows
from backhaul_agent.ledger.rows import LedgerChanges, Staged
from backhaul_agent.uplink.adoption import Adoption, HeldLane
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.out_stream import OutStream
from backhaul_codec import Point, chain, encode_bundle, hash_of
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary, is_packed, pack_with
from backhaul_codec.wire.envelope import NO_LINK, unseal
from backhaul_runtime.jetstream import StreamMessage
from tests.agent.ledgers import open_ledger, opening, outgoing
from tests.agent.writers import CONFIG
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger

STAGED, OTHER = (Point("living room", "temperature", time, 20.5) for time in (5, 9))
DICTIONARY = unseal(encode_bundle([OTHER], epoch=0, seq=0))[1]
SUBJECT = dictionary_subject(digest_of(DICTIONARY))
PACKED = pack_with(encode_bundle([STAGED], epoch=0, seq=0), DICTIONARY)


class Leaf:
    """OUT_bulk with one epoch that the ledger does not know; its messages from seq 1 on."""

    def __init__(self, *messages: tuple[str, bytes]) -> None:
        self.messages, link = [], NO_LINK
        for seq, (subject, body) in enumerate(messages, 1):
            linked = chain(body, epoch=44, seq=seq, link=link)
            link = hash_of(subject, linked)
            self.messages.append(StreamMessage(seq, subject, linked))

    async def created_and_state(self, _: str) -> tuple[str, dict[str, Any]]:
        many = len(self.messages)
        return "now", {"messages": many, "first_seq": 1, "last_seq": many}

    async def message(
        self, _: str, *, seq: int = 0, last_by_subj: str = ""
    ) -> StreamMessage | None:
        found = [each for each in self.messages if last_by_subj in ("", each.subject)]
        return next((each for each in reversed(found) if seq in (0, each.seq)), None)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """A ledger that sent a message in epoch 42 and has a point staged; then epoch 43 began."""
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        await ledger.commit(LedgerChanges([outgoing()], [Staged("living room", 1, pack([STAGED]))]))
        await ledger.commit(LedgerChanges(opening=opening()))
        yield ledger
    finally:
        await ledger.close()


async def take_in(ledger: Ledger, leaf: Leaf, held: HeldLane | None = None) -> Writer:
    writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    adoption = Adoption("bulk", ledger, writer)
    out = OutStream(cast("JetStream", leaf), "OUT_bulk")
    await adoption.look(out)
    if held is not None:
        adoption.heard(44, held)
    writing = asyncio.create_task(writer.run())
    async with asyncio.timeout(20):
        await adoption.take_in(out, everything=True)
        await writer.all_written()
    writing.cancel()
    await asyncio.wait([writing])
    return writer


def test_the_message_is_packed() -> None:
    assert is_packed(PACKED)


@pytest.mark.parametrize("held", [0, 1], ids=["all taken in", "the hub holds the dictionary"])
async def test_what_is_packed_is_taken_in_with_its_dictionary(ledger: Ledger, held: int) -> None:
    """Where the hub holds the message that brings it, that one is not taken in: the dictionary is."""
    leaf = Leaf((SUBJECT, encode_dictionary(DICTIONARY)), ("b", PACKED))
    first = leaf.messages[0]
    word = HeldLane(1, hash_of(first.subject, first.data)) if held else None
    writer = await take_in(ledger, leaf, word)
    rows = await ledger.read("bulk", 1, 9, 44)
    assert [row.subject for row in rows] == [SUBJECT, "b"][held:]
    assert rows[-1].body == leaf.messages[1].data
    [times] = await ledger.query("SELECT t_lo, t_hi FROM messages WHERE subject = 'b'")
    assert times == (STAGED.time, STAGED.time), "history finds it"
    assert writer.packer.lookup(digest_of(DICTIONARY)) == DICTIONARY
    assert list(await dictionary_rows.load(ledger._db)) == [digest_of(DICTIONARY)]


async def test_what_is_packed_against_what_only_the_hub_has_is_taken_in_and_sent(
    ledger: Ledger,
) -> None:
    writer = await take_in(
        ledger, Leaf(("b", PACKED), ("b", encode_bundle([OTHER], epoch=0, seq=0)[:-2] + b"!!"))
    )
    [row] = await ledger.read("bulk", 1, 9, 44)
    assert row.body.endswith(PACKED[-12:])
    assert writer.packer.lookup(digest_of(DICTIONARY)) is None


@pytest.mark.parametrize("there", [True, False], ids=["its dictionary is there", "it is not"])
async def test_staged_points_are_looked_for_in_what_is_packed(ledger: Ledger, there: bool) -> None:
    """Where it cannot be read nobody knows what was sent: a person must judge."""
    brought = [(SUBJECT, encode_dictionary(DICTIONARY))] if there else []
    leaf = Leaf(*brought, ("b", PACKED))
    writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    suspects = writer.gate.unconfirmed
    suspects.restore(await ledger.staged(), 42, {"bulk": 1}, {})
    words = EpochWords(ledger, writer, FakeClock())
    words.heard({42: {"bulk": (1, 0)}}, {})
    writing = asyncio.create_task(writer.run())
    async with asyncio.timeout(20):
        await words._judge(suspects.formers[0], cast("JetStream", leaf))
        await writer.all_written()
    writing.cancel()
    await asyncio.wait([writing])
    assert ledger.quarantined == (0 if there else 1)
    assert await ledger.staged() == []
    assert await ledger.read("bulk", 1, 9) == [], "sent before: it is not framed again"
