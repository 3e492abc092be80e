"""When a mark is due, and that its word is true: all that was kept before it stands before it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commit.contents import Points
from backhaul_agent.commit.marks import HOUR_NS, LOOK_S, REST_S_MIN, Marks
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.ledger.ledger import Ledger
from backhaul_codec import Point, decode, hash_of, peek
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.ledger.rows import LedgerChanges

HALF_PAST_NS = 1_700_000_000_000_000_000 // HOUR_NS * HOUR_NS + HOUR_NS // 2


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(HALF_PAST_NS)


def test_marks_are_due_at_start_on_the_hour_and_at_the_stop(clock: FakeClock) -> None:
    marks = Marks(clock)
    assert marks.due() == "start"
    marks.marked(clock.now_ns())
    assert marks.due() == ""
    assert marks.next_s() - clock.now_s == LOOK_S
    clock.advance(1799)
    assert marks.due() == ""
    assert 1 < marks.next_s() - clock.now_s < 1.1
    clock.advance(1.001)
    assert marks.due() == "hour"
    marks.marked(clock.now_ns())
    assert marks.due() == ""
    marks.stop()
    assert marks.due() == "stop"


def test_a_clock_that_jumps_over_an_hour_is_an_hour(clock: FakeClock) -> None:
    marks = Marks(clock)
    marks.marked(clock.now_ns())
    clock.wall_ns -= 5 * HOUR_NS
    assert marks.due() == "hour"


def test_a_link_that_comes_and_goes_is_marked_now_and_then(clock: FakeClock) -> None:
    marks = Marks(clock)
    marks.marked(clock.now_ns())
    clock.advance(1)
    marks.link_up()
    assert marks.due() == ""
    assert marks.next_s() == clock.now_s + REST_S_MIN - 1
    clock.advance(REST_S_MIN - 1)
    assert marks.due() == "link"
    marks.marked(clock.now_ns())
    marks.link_up()
    clock.advance(REST_S_MIN)
    assert marks.due() == "link"


def test_a_hub_that_has_lost_something_is_told_how_far_lanes_are(clock: FakeClock) -> None:
    """A link that was away for less than a second is seen by nobody; what the hub says is."""
    marks = Marks(clock)
    marks.marked(clock.now_ns())
    marks.watermark_fell()
    assert marks.due() == ""
    assert marks.next_s() == clock.now_s + REST_S_MIN
    clock.advance(REST_S_MIN)
    assert marks.due() == "watermark"
    marks.marked(clock.now_ns())
    assert marks.due() == ""


def test_no_mark_while_the_time_is_not_known(clock: FakeClock) -> None:
    marks = Marks(clock)
    clock.settled = False  # type: ignore[attr-defined]
    assert marks.due() == ""
    clock.settled = True  # type: ignore[attr-defined]
    assert marks.due() == "start"


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(
        tmp_path / "ledger.db", device="VID-001", bytes_max=1 << 26, epoch=lambda: 42
    )
    try:
        yield ledger
    finally:
        await ledger.close()


async def test_a_mark_frames_what_is_staged_and_names_every_lane(
    ledger: Ledger, clock: FakeClock
) -> None:
    config = Config(device=DeviceConfig(id="VID-001", token="tok"))
    of_lanes = Marks(clock)
    writer = Writer(ledger, config, clock, on_commit=lambda: None, marks=of_lanes)
    task = asyncio.create_task(writer.run())
    kept = asyncio.Event()

    async def keep(live: bool) -> None:
        kept.clear()
        points = Points("n", [Point("n", "t", 1, 1.0)], live)
        writer.submit(QueuedPublish(points, 10, True, lambda *_: kept.set()))
        await kept.wait()

    await keep(live=True)
    await keep(live=False)
    assert writer.buffered_points == 1
    clock.advance(REST_S_MIN)
    of_lanes.link_up()
    writer.wake()
    while writer.buffered_points:  # noqa: ASYNC110 - no event in a pure buffer
        await asyncio.sleep(0)
    clock.advance(REST_S_MIN)
    writer.set_watermark("bulk", 1)
    await keep(live=False)
    assert writer.buffered_points > 0
    writer.set_watermark("bulk", 0)
    while writer.buffered_points:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await keep(live=False)
    writer.stop()
    await task
    marks = []
    for row in await ledger.read("live", 1, 100):
        if row.subject == "e.mark":
            value: Any = decode(row.body, node="", type="x").points[0].value
            marks.append((peek(row.body).seq, json.loads(value.data)))
    hashes = {
        row.seq: hash_of(row.subject, row.body).hex() for row in await ledger.read("bulk", 1, 100)
    }
    for number, (_, said) in enumerate(marks):
        # Of the mark's own lane its link says it: it cannot hold its own hash.
        assert said.pop("chain") == ({"bulk": hashes[number]} if number else {})
    start, link, fell, stop = marks
    assert start[1]["why"] == "start"
    assert start[1]["lanes"] == {"live": start[0], "bulk": 0}
    assert link[1] == {"epoch": 42, "lanes": {"live": link[0], "bulk": 1}, "why": "link"}
    assert fell[1] == {"epoch": 42, "lanes": {"live": fell[0], "bulk": 2}, "why": "watermark"}
    assert stop[1] == {"epoch": 42, "lanes": {"live": stop[0], "bulk": 3}, "why": "stop"}
    assert stop[0] == ledger.lanes["live"].last_seq
    assert ledger.lanes["bulk"].last_seq == 3


async def test_an_hour_that_begins_while_another_mark_is_written_gets_its_own(
    ledger: Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.wall_ns += HOUR_NS // 2 - 1
    config = Config(device=DeviceConfig(id="VID-001", token="tok"))
    marks = Marks(clock)
    writer = Writer(ledger, config, clock, on_commit=lambda: None, marks=marks)
    commit = ledger.commit

    async def takes_a_second(changes: LedgerChanges) -> list[int]:
        clock.advance(1)
        return await commit(changes)

    monkeypatch.setattr(ledger, "commit", takes_a_second)
    await writer._commit(flush=False)
    assert marks.written == 1
    assert marks.due() == "hour"
