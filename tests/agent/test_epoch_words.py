"""What becomes of points that were staged in a former epoch, by what OUT holds beyond the ledger.

The leaf is a list of messages; what it does while it is asked is the point.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_agent.commit.epoch_gate import EpochGate
from backhaul_agent.commit.epochs import Epochs
from backhaul_agent.commit.framer import pack
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.ledger.rows import Adopted, LedgerChanges, LedgerRow, Staged
from backhaul_agent.uplink.adoption import Adoption, HeldLane
from backhaul_agent.uplink.confirmations import Confirmations
from backhaul_agent.uplink.epoch_sync import SPAN_MAX, EpochWords
from backhaul_agent.uplink.out_stream import OutStream
from backhaul_codec import Point, encode_point, hash_of
from backhaul_runtime.jetstream import StreamMessage
from tests.agent.ledgers import open_ledger, opening, outgoing
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.uplink.lane import Lane

CONFIG = Config(device=DeviceConfig(id="VID-001", token="t"))
STAGED, OTHER = (Point("n", "t", number, float(number)) for number in (1, 2))


class Leaf:
    """OUT_bulk, by epochs and seqs; `on_asked` runs with every question."""

    def __init__(self, messages: Iterable[tuple[int, int]]) -> None:
        self.messages = list(messages)
        self.on_asked: Callable[[], Awaitable[None]] | None = None

    async def created_and_state(self, _: str) -> tuple[str, dict[str, Any]]:
        await self._asked()
        many = len(self.messages)
        return "now", {"messages": many, "first_seq": 1, "last_seq": many}

    async def message(self, _: str, *, seq: int) -> StreamMessage | None:
        await self._asked()
        epoch, number = self.messages[seq - 1]
        return StreamMessage(seq, "p.n.t.%", encode_point(OTHER, epoch=epoch, seq=number))

    async def _asked(self) -> None:
        if self.on_asked is not None:
            await self.on_asked()


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """A ledger that sent a message in epoch 42 and has a point staged; then epoch 43 began."""
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        staged = Staged("n", 1, pack([STAGED]))
        await ledger.commit(LedgerChanges([outgoing()], [staged]))
        await ledger.commit(LedgerChanges(opening=opening()))
        yield ledger
    finally:
        await ledger.close()


async def judge(
    ledger: Ledger,
    leaf: Leaf,
    highest: dict[int, int],
    *,
    former: int = 42,
    mark: int = 0,
    meta: Mapping[str, str | int] | None = None,
) -> list[list[Point]]:
    """Judge the staged row; return the points that may be framed now."""
    writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    suspects = writer.gate.unconfirmed
    lane = ledger.lane("bulk", former)
    assert lane is not None
    rows = [row._replace(boot=mark) for row in await ledger.staged()]
    suspects.restore(rows, former, {"bulk": lane.last_seq}, meta or {})
    words = EpochWords(ledger, writer, FakeClock())
    words.heard({epoch: {"bulk": (seq, 0)} for epoch, seq in highest.items()}, {})
    writing = asyncio.create_task(writer.run()) if leaf.on_asked is None else None
    try:
        [found] = suspects.formers
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await words._judge(found, cast("JetStream", leaf))
        return [points for _, points in suspects.take_cleared()]
    finally:
        if writing is not None:
            writing.cancel()
            await asyncio.wait([writing])


async def test_what_is_appended_while_out_is_looked_through_is_no_reason_to_doubt(
    ledger: Ledger,
) -> None:
    """Marked points cannot be compared: they would be given up."""
    leaf = Leaf([(42, 1), (43, 1)])
    await ledger.commit(LedgerChanges([outgoing()]))

    async def append() -> None:
        await ledger.commit(LedgerChanges([outgoing()]))
        leaf.messages.append((43, ledger.last_seq("bulk")))

    leaf.on_asked = append
    assert await judge(ledger, leaf, {42: 1}, mark=1) == [[STAGED]]


async def test_what_a_later_ledger_sent_is_looked_through_whole_or_not_at_all(
    ledger: Ledger,
) -> None:
    """The hub was not asked of epoch 44: OUT itself says how far that goes."""
    leaf = Leaf([(42, 1), *((44, seq + 1) for seq in range(SPAN_MAX + 1))])
    assert await judge(ledger, leaf, {42: 1}) == []
    assert ledger.quarantined == 1


async def test_what_the_hub_alone_holds_of_a_later_epoch_may_be_what_was_staged(
    ledger: Ledger,
) -> None:
    """A copy put back from when epoch 43 had sent nothing: OUT has it no more, as the hub has taken it."""
    assert await judge(ledger, Leaf([]), {42: 1, 43: 0}) == [[STAGED]]
    await ledger.commit(LedgerChanges(opening=opening(44)))
    assert await judge(ledger, Leaf([]), {42: 1, 43: 1}) == []


async def test_the_current_epoch_may_be_the_one_in_which_it_was_sent(ledger: Ledger) -> None:
    """A copy put back while epoch 43 was current: the hub has more of it, and nobody has ended it yet."""
    assert await judge(ledger, Leaf([]), {42: 1, 43: 1}) == []
    assert ledger.quarantined == 1


async def test_nothing_is_judged_before_the_hub_has_spoken_of_each_later_epoch(
    ledger: Ledger,
) -> None:
    writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    suspects = writer.gate.unconfirmed
    suspects.restore(await ledger.staged(), 42, {"bulk": 1}, {})
    words = EpochWords(ledger, writer, FakeClock())
    running = asyncio.create_task(words.run(cast("JetStream", Leaf([(42, 1)]))))
    try:
        words.heard({42: {"bulk": (1, 0)}}, {})
        await until(lambda: 42 in words._compared)
        assert suspects.of(42), "epoch 43 was there at the start: a newer copy may have sent in it"
        assert words.wanted()[:2] == [42, 43]
        # One that began since is this ledger's alone.
        await ledger.commit(LedgerChanges(opening=opening(44)))
        words.heard({43: {"bulk": (0, 0)}}, {})
        await until(lambda: not suspects.of(42))
        assert [points for _, points in suspects.take_cleared()] == [[STAGED]]
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_holes_of_older_epochs_say_nothing_of_what_was_staged_later(ledger: Ledger) -> None:
    """Of a ledger that is gone, 41, only the end still stands in OUT; of 42 the hub knows more than we."""
    leaf = Leaf([(41, 9), (42, 1)])
    await ledger.commit(LedgerChanges(opening=opening(44)))
    assert await judge(ledger, leaf, {42: 3, 43: 0}, former=43) == [[STAGED]]


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("held", [False, True])
async def test_what_was_taken_in_from_out_may_be_what_was_staged(
    ledger: Ledger, emptied: bool, held: bool
) -> None:
    """The ledger knows epoch 44 from then on, also after a restart, but did not send it.

    If the hub holds it for certain it is not taken in: then it is gone when OUT is emptied.
    """
    await ledger.commit(LedgerChanges(staged=[Staged("n", 1, pack([OTHER]))]))
    leaf = Leaf([(42, 1), (43, 1), (44, 1), (44, 2)])
    await ledger.commit(LedgerChanges([outgoing()]))
    before = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    before.gate.unconfirmed.restore(await ledger.staged(), 42, {"bulk": 1}, {})
    adoption = Adoption("bulk", ledger, before)
    out = OutStream(cast("JetStream", leaf), "OUT_bulk")
    await adoption.look(out)
    if held:
        first = await leaf.message("", seq=3)
        assert first is not None
        adoption.heard(44, HeldLane(1, hash_of(first.subject, first.data)))
    writing = asyncio.create_task(before.run())
    await adoption.take_in(out, everything=True)
    writing.cancel()
    await asyncio.wait([writing])
    assert ledger.lane("bulk", 44) is not None

    leaf = Leaf([] if emptied else leaf.messages)
    again = await judge(ledger, leaf, {42: 1, 43: 1, 44: 2}, meta=ledger.meta)
    if emptied and held:
        assert again == []
        assert ledger.quarantined == 2
    else:
        assert again == [[STAGED]]
        assert [row.points for row in await ledger.staged()] == [1, 1]


async def test_a_kill_after_out_was_emptied_forgets_nothing_that_the_hub_alone_holds(
    ledger: Ledger,
) -> None:
    """The next run knows of epoch 44 by the note alone: neither OUT nor the ledger has any of it."""
    leaf = Leaf([(42, 1), (43, 1), (44, 1)])
    await ledger.commit(LedgerChanges([outgoing()]))
    writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    writer.gate.unconfirmed.restore(await ledger.staged(), 42, {"bulk": 1}, {})
    adoption = Adoption("bulk", ledger, writer)
    out = OutStream(cast("JetStream", leaf), "OUT_bulk")
    await adoption.look(out)
    last = await leaf.message("", seq=3)
    assert last is not None
    adoption.heard(44, HeldLane(1, hash_of(last.subject, last.data)))
    writing = asyncio.create_task(writer.run())
    await adoption.take_in(out, everything=True)
    left = dict(ledger.meta)  # as a kill leaves it
    writing.cancel()
    await asyncio.wait([writing])
    assert ledger.lane("bulk", 44) is None

    assert await judge(ledger, Leaf([]), {42: 1, 43: 1}, meta=left) == []
    assert ledger.quarantined == 1


class GoneBack:
    """A ledger that went back together with OUT, and the question to the hub that tells so."""

    def __init__(self, ledger: Ledger) -> None:
        epochs = Epochs(fresh=False, lanes=(), last_seq=ledger.last_seq)
        gate = EpochGate(ledger, HubClock.of(FakeClock()), epochs, lambda: 43)
        self.ledger = ledger
        self.writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None, gate=gate)
        self.passed: list[int] = []
        lane = SimpleNamespace(
            name="bulk",
            on_passed=self.passed.append,
            on_watermark=lambda *_: None,
            adoption=Adoption("bulk", ledger, self.writer),
            confirmations=Confirmations("bulk", ledger, self.writer),
        )
        self.words = EpochWords(ledger, self.writer, FakeClock(), [cast("Lane", lane)])

    def hub_answers(self) -> None:
        """Have the hub say of what it is asked that it has nine messages of the lane."""
        self.words.heard({epoch: {"bulk": (9, 9)} for epoch in self.words.wanted()}, {})

    @contextlib.asynccontextmanager
    async def connected(self, leaf: Leaf) -> AsyncIterator[asyncio.Task[None]]:
        """Judge for as long as a connection lives; it sees to what there is to be done first."""
        task = asyncio.create_task(self.words.run(cast("JetStream", leaf)))
        try:
            await asyncio.sleep(0)
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()


@pytest.fixture
async def gone_back(tmp_path: Path) -> AsyncIterator[GoneBack]:
    """All that this ledger has, the hub holds; what it had after that, too."""
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        await ledger.commit(LedgerChanges([outgoing()], watermarks={"bulk": 1}))
        yield GoneBack(ledger)
    finally:
        await ledger.close()


async def test_a_disk_that_went_back_is_looked_for_once_the_epoch_is_over(
    gone_back: GoneBack,
) -> None:
    """The hub's word ends the epoch, and is of use only once that has ended."""
    async with gone_back.connected(Leaf([(42, 1)])):
        gone_back.hub_answers()
        for _ in range(100):
            await asyncio.sleep(0)
        await gone_back.writer._commit(flush=False)
        assert gone_back.ledger.epoch == 43
        assert gone_back.words.wanted() == [42]
        gone_back.hub_answers()
        await until(lambda: bool(gone_back.passed))
        assert gone_back.words.wanted() == []


async def test_what_a_connection_did_not_live_to_look_through_the_next_one_does(
    gone_back: GoneBack,
) -> None:
    leaf, asked = Leaf([(42, 1)]), asyncio.Event()

    async def is_gone() -> None:
        asked.set()
        await asyncio.Event().wait()

    leaf.on_asked = is_gone
    gone_back.hub_answers()
    await gone_back.writer._commit(flush=False)
    async with gone_back.connected(leaf):
        await asked.wait()
    async with gone_back.connected(Leaf([(42, 1)])):
        await until(lambda: bool(gone_back.passed))


async def test_an_out_that_holds_what_came_after_the_copy_did_not_go_back(
    gone_back: GoneBack,
) -> None:
    """Only the ledger did: to pass over sequences would empty an OUT that alone holds epoch 44."""
    gone_back.hub_answers()
    await gone_back.writer._commit(flush=False)
    async with gone_back.connected(Leaf([(42, 1), (44, 1)])):
        gone_back.hub_answers()
        await until(lambda: 42 in gone_back.words._compared)
    assert gone_back.passed == []


class OtherLaneFirst(Leaf):
    """Holds nothing of live, which is looked through before bulk."""

    async def created_and_state(self, stream: str) -> tuple[str, dict[str, Any]]:
        created, state = await super().created_and_state(stream)
        return created, state if stream == "OUT_bulk" else {"messages": 0}


async def test_what_the_ledger_takes_in_meanwhile_is_still_what_it_lacked(
    gone_back: GoneBack,
) -> None:
    """Found by chaos: bulk got its messages while live was looked through, and the agent ended."""
    ledger, rows = gone_back.ledger, []
    for seq in range(2, 10):
        body = encode_point(OTHER, epoch=42, seq=seq)
        rows.append(LedgerRow(seq, "p.n.t.%", body))
    leaf = OtherLaneFirst([(42, seq) for seq in range(1, 10)])

    async def take_in() -> None:
        leaf.on_asked = None
        await ledger.commit(LedgerChanges(adopted=[Adopted("bulk", 42, rows)]))

    leaf.on_asked = take_in
    words = gone_back.words
    words.heard({42: {"live": (9, 9), "bulk": (9, 9)}}, {})
    await gone_back.writer._commit(flush=False)
    async with gone_back.connected(leaf) as judging:
        await until(lambda: 42 in words._compared or judging.done())
    lane = ledger.lane("bulk", 42)
    assert lane is not None
    assert lane.last_seq == 9
    assert gone_back.passed == []
