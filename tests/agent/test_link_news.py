"""What is told when the link comes up, and that nothing is told before its times are right."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.heads import Changed, HeadKeeper
from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.rows import LedgerRow
from backhaul_agent.sync.digests import SETTLE_S
from backhaul_agent.sync.newest_values import LAG_S
from backhaul_agent.sync.on_link_up import LinkNews
from backhaul_codec import Opaque, Point, decode, encode_bundle, encode_frame
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.wire.dictionaries import digest_of, is_packed, pack_with
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backhaul_agent.ledger.rows import Outgoing

CONFIG = Config(device=DeviceConfig(id="VID-001", token="tok"))
DICTIONARY = b"names that bundles have in common"
DICTIONARIES = {digest_of(DICTIONARY): DICTIONARY}


class Vehicle:
    """A writer that only remembers, and a ledger of frames 1.. of which the hub has some."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.keeper = HeadKeeper("VID-001", self.clock.now_ns)
        self.lookup = DICTIONARIES.get
        self.told: list[tuple[str, Any]] = []
        self.news = asyncio.Event()
        self.fresh_frames: list[bytes] = []
        self.rows: dict[str, list[tuple[str, int, bytes]]] = {}  # by lane: subject, boot, body
        self.lanes: dict[str, Any] = {}
        for name in ("live", "bulk", "n_gps"):
            self.lanes[name] = SimpleNamespace(name=name, last_seq=0, watermark=0)
            self.rows[name] = []
        self.disk_error: Exception | None = None
        self.settled = True
        self.uplink = UplinkState()
        writer: Any = self
        ledger: Any = self
        self.link_news = LinkNews(
            CONFIG, ledger, writer, self.clock, self.uplink, settled=lambda: self.settled
        )

    def keep(
        self, *values: float, boot: int = 0, node: str = "n", lane: str = "bulk", part: str = "f"
    ) -> None:
        """Have a frame of a node in the ledger: series t0, t1 .. at the time of its seq."""
        end = self.lanes[lane]
        end.last_seq += 1
        points = [Point(node, f"t{i}", end.last_seq, value) for i, value in enumerate(values)]
        prefix = f"n.{node}." if lane.startswith("n_") else ""
        body = encode_frame(points, epoch=0, seq=0)
        self.rows[lane].append((f"{prefix}{part}.{node}", boot, body))

    def tell(self, *events: Outgoing) -> None:
        for event in events:
            (point,) = decode(event.body).points
            assert isinstance(point.value, Opaque)
            self.told.append((event.subject, json.loads(point.value.data)))
        self.news.set()

    def take_newest_frames(self) -> list[bytes]:
        frames, self.fresh_frames = self.fresh_frames, []
        return frames

    async def read(self, lane: str, from_seq: int, rows_max: int) -> list[Any]:
        if self.disk_error:
            raise LedgerStorageError(Path("ledger.db"), "reading", self.disk_error)
        rows = self.rows[lane][from_seq - 1 : from_seq - 1 + rows_max]
        return [
            LedgerRow(seq, subject, body, boot) for seq, (subject, boot, body) in enumerate(rows, 1)
        ]

    def pass_time(self, seconds: float) -> None:
        """Let time pass and have it noticed."""
        self.clock.advance(seconds)
        for wake in self.keeper.on_heads:
            wake([])

    def merge_a_head_of_the_hubs(self) -> None:
        """Have a head change as the hub's word does it: the root is due a little later."""
        for tell in self.keeper.on_heads:
            tell([Changed(HeadKey("", "n", "limit", ""), Head(5, "hub", 80.0))])

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.told) < count:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def running() -> AsyncIterator[Vehicle]:
    it = Vehicle()
    task = asyncio.create_task(it.link_news.run())
    try:
        yield it
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turns() -> None:
    """Let everything run that can without a clock going on."""
    for _ in range(20):
        await asyncio.sleep(0)


def heads(*points: list[Any]) -> tuple[str, Any]:
    return "e.heads", {"points": list(points)}


async def test_newest_values_first_then_the_root() -> None:
    async with running() as it:
        it.keep(1.0, 2.0)
        it.keep(3.0)
        it.uplink.note(True)
        await it.until_told(2)
        assert it.told == [
            heads(["n", "t0", "", 2, 3.0], ["n", "t1", "", 1, 2.0]),
            ("e.digest", {"root": it.keeper.heads.root(), "count": 0}),
        ]


async def test_no_newest_values_of_a_lane_that_is_pushed() -> None:
    """The hub confirms such a lane every ten seconds only: it would count as a backlog for ever."""
    async with running() as it:
        it.link_news.pushed = frozenset({"n_gps"}).__contains__
        it.keep(1.0)
        it.keep(2.0, node="gps", lane="n_gps")
        it.uplink.note(True)
        await it.until_told(2)
        assert it.told[0] == heads(["n", "t0", "", 1, 1.0])
        it.keep(3.0, node="gps", lane="n_gps")
        for _ in range(4):
            it.fresh_frames = [encode_frame([Point("gps", "t0", 3, 3.0)], epoch=0, seq=0)]
            it.lanes["bulk"].watermark = it.lanes["bulk"].last_seq
            it.pass_time(LAG_S)
            await turns()
        assert len(it.told) == 2
        it.link_news.pushed = lambda _: False
        for _ in range(2):
            it.fresh_frames = [encode_frame([Point("gps", "t0", 4, 4.0)], epoch=0, seq=0)]
            it.pass_time(LAG_S + 1)
            await turns()
        assert it.told[2:] == [heads(["gps", "t0", "", 4, 4.0])]


async def test_newest_values_of_what_is_packed_against_a_dictionary_of_the_ledger() -> None:
    async with running() as it:
        node = DICTIONARY.decode()
        for time, dictionary in ((1, DICTIONARY), (2, b"lost: " + DICTIONARY)):
            body = encode_bundle([Point(node, "t0", time, 1.5)], epoch=0, seq=0)
            packed = pack_with(body, dictionary)
            assert is_packed(packed)
            it.rows["bulk"].append(("b", 0, packed))
            it.lanes["bulk"].last_seq += 1
        it.uplink.note(True)
        await it.until_told(2)
        assert it.told[0] == heads([node, "t0", "", 1, 1.5])


async def test_newest_values_of_nodes_with_lanes_of_their_own() -> None:
    async with running() as it:
        it.keep(1.0)
        it.keep(5.0, node="gps", lane="n_gps")
        it.keep(9.0, node="gps", lane="n_gps", part="p")  # configuration: no news of telemetry
        it.uplink.note(True)
        await it.until_told(1)
        assert it.told[0] == heads(["n", "t0", "", 1, 1.0], ["gps", "t0", "", 1, 5.0])


async def test_the_root_is_told_again_once_a_lane_that_lagged_has_caught_up() -> None:
    """A node's points wait in its lane while the root goes ahead on live."""
    async with running() as it:
        it.keep(5.0, node="gps", lane="n_gps")
        it.uplink.note(True)
        await it.until_told(2)
        assert not it.link_news.digests.compare({"gps": "0"}).tell  # the hub complained
        it.lanes["n_gps"].watermark = 1
        it.pass_time(10.0)
        async with asyncio.timeout(60):
            while it.link_news.digests.due_s is None:  # noqa: ASYNC110 - a fake has no event
                await asyncio.sleep(0)
        it.pass_time(2.0)
        await it.until_told(3)
        assert it.told[2][0] == "e.digest"


async def test_only_what_the_hub_lacks_and_whose_times_are_right() -> None:
    async with running() as it:
        it.keep(1.0, 1.0, 1.0)
        it.keep(2.0, 2.0)
        it.keep(9.0, 9.0, boot=4)
        subject, boot, body = it.rows["bulk"][1]
        it.rows["bulk"][1] = (subject, boot, body[:-1])  # damaged
        it.keep(3.0)
        it.lanes["bulk"].watermark = 1
        it.fresh_frames.append(encode_frame([Point("m", "x", 7, 5.0)], epoch=0, seq=0))
        it.uplink.note(True)
        await it.until_told(2)
        assert it.told[0] == heads(["n", "t0", "", 4, 3.0], ["m", "x", "", 7, 5.0])


async def test_without_a_backlog_there_is_nothing_to_say_first() -> None:
    async with running() as it:
        it.keep(1.0)
        it.lanes["bulk"].watermark = 1
        it.fresh_frames.append(encode_frame([Point("m", "x", 7, 5.0)], epoch=0, seq=0))
        it.uplink.note(True)
        await it.until_told(1)
        assert [subject for subject, _ in it.told] == ["e.digest"]
        assert it.fresh_frames == [], "they have arrived, and are no news when a backlog comes"


async def test_a_ledger_that_cannot_be_read_just_now_stops_nothing() -> None:
    async with running() as it:
        it.keep(1.0)
        it.disk_error = OSError("just now not")
        it.fresh_frames.append(encode_frame([Point("m", "x", 7, 5.0)], epoch=0, seq=0))
        it.uplink.note(True)
        await it.until_told(2)
        assert it.told[0] == heads(["m", "x", "", 7, 5.0])


async def test_nothing_is_told_before_the_time_is_known() -> None:
    async with running() as it:
        it.settled = False
        it.keep(1.0)
        it.uplink.note(True)
        await turns()
        assert it.told == []
        it.settled = True
        await it.until_told(2)


async def test_nothing_is_told_without_a_link_and_all_of_it_afterwards() -> None:
    async with running() as it:
        it.uplink.note(True)
        await it.until_told(1)
        it.uplink.note(False)
        it.keep(1.0)
        it.merge_a_head_of_the_hubs()
        it.clock.advance(SETTLE_S)
        await turns()
        assert len(it.told) == 1
        it.uplink.note(True)
        await it.until_told(3)
        assert [subject for subject, _ in it.told[1:]] == ["e.heads", "e.digest"]


async def test_the_root_is_told_again_once_the_heads_have_settled() -> None:
    async with running() as it:
        it.uplink.note(True)
        await it.until_told(1)
        it.merge_a_head_of_the_hubs()
        it.clock.advance(SETTLE_S)
        await turns()
        assert [subject for subject, _ in it.told] == ["e.digest", "e.digest"]


async def test_what_is_due_later_is_told_without_anything_happening_then() -> None:
    async with running() as it:
        it.uplink.note(True)
        await it.until_told(1)
        it.merge_a_head_of_the_hubs()
        await turns()
        assert len(it.told) == 1
        it.clock.advance(SETTLE_S)
        await it.until_told(2)
