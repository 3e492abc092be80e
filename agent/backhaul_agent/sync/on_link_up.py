"""The first words to the hub when the link is up: the newest values, and the digest of our heads.

The shell around `digests.Digests` and `newest_values.HeadsFirst`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from backhaul_agent.cancellation import heard
from backhaul_agent.commit.heads import Changed
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config
from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.eviction_policy import TELEMETRY, class_of
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import LedgerRow
from backhaul_agent.ledger.system_events import event
from backhaul_agent.sync.digests import Digests
from backhaul_agent.sync.newest_values import HeadsFirst
from backhaul_codec import CodecError
from backhaul_codec.kinds import LIVE
from backhaul_codec.state.newest import newest_of
from backhaul_codec.wire.dictionaries import plain
from backhaul_runtime.clock import Clock

FRAMES_READ = 256  # of the ledger, when the link comes up: of all lanes that lag together
FRAMES_READ_MIN = 16
FRAMES_AT_ONCE = 16  # decoded before others get their turn
log = structlog.get_logger("link")


class LinkNews:
    """Tells; lives as long as the daemon.

    ``settled``: whether stamps stay as they are, those made now and those of all heads. While they do
    not nothing is told: times in here are not corrected later.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        writer: Writer,
        clock: Clock,
        uplink: UplinkState,
        settled: Callable[[], bool] = lambda: True,
    ) -> None:
        self.digests = Digests(writer.keeper, clock, ledger.lanes, settled)
        link_bytes_s = config.link.rate_kbit_s * 1000 / 8
        self.heads_first = HeadsFirst(link_bytes_s, clock.monotonic_s())
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._uplink = uplink
        self._settled = settled
        self.pushed: Callable[[str], bool] = lambda _: False
        """Whether a lane is pushed: what it carries is at the hub at once, its watermark comes later."""
        self._read_ledger = False
        self._wake = asyncio.Event()
        uplink.on_up.append(self._on_up)
        writer.keeper.on_heads.append(self._on_heads)

    async def run(self) -> None:
        """Tell the words that are due, for as long as the connection lives (the caller cancels)."""
        while True:
            self._wake.clear()
            wait_s = None
            if self._uplink.up and self._settled():
                await self._tell()
                dues = (self.digests.due_s, self.heads_first.due_s)
                due_s = min((due_s for due_s in dues if due_s is not None), default=None)
                wait_s = due_s and max(0.0, due_s - self._clock.monotonic_s())
            elif self._uplink.up:
                wait_s = 1.0  # until the time is known
            await heard(self._wake, wait_s)

    async def _tell(self) -> None:
        now_s = self._clock.monotonic_s()
        if self.heads_first.due_s is not None and self.heads_first.due_s <= now_s:
            await self._tell_heads(now_s)
        self.digests.look()
        if self.digests.due_s is not None and self.digests.due_s <= now_s:
            self._writer.tell(self.digests.root())

    async def _tell_heads(self, now_s: float) -> None:
        lanes = [
            lane
            for lane in self._ledger.lanes.values()
            if lane.name != LIVE and not self.pushed(lane.name)
        ]
        ends = {lane.name: (lane.last_seq, lane.watermark) for lane in lanes}
        behind = self.heads_first.wanted(now_s, ends)
        if not behind:
            self._writer.take_newest_frames()  # they have arrived, or will before they could be told
            return
        await self._collect(behind)
        if points := self.heads_first.message(now_s):
            told = event("heads", {"points": points}, self._clock.now_ns(), packed=True)
            self.heads_first.told(len(told.body))
            self._writer.tell(told)

    async def _collect(self, lanes: list[str]) -> None:
        frames: Iterable[bytes] = self._writer.take_newest_frames()
        if self._read_ledger:
            self._read_ledger = False
            try:
                rows = [row for name in lanes for row in await self._newest(name, len(lanes))]
            except LedgerStorageError as error:
                log.warning("latest_values_not_read", error=str(error))
                rows = []
            frames = [*(row.body for row in rows if not row.boot), *frames]
        for number, frame in enumerate(frames, 1):
            try:
                self.heads_first.values.take(newest_of(plain(frame, self._ledger.lookup)))
            except CodecError:
                continue  # the lane sets it aside, and says so
            if number % FRAMES_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _newest(self, name: str, lanes: int) -> list[LedgerRow]:
        """Return the newest frames of a lane, one of so many, that the hub has not confirmed."""
        lane, count = self._ledger.lanes[name], max(FRAMES_READ_MIN, FRAMES_READ // lanes)
        first = max(lane.watermark + 1, lane.last_seq + 1 - count)
        rows = await self._ledger.read(name, first, count)
        return [row for row in rows if class_of(row.subject) == TELEMETRY]

    def _on_up(self) -> None:
        self._read_ledger = True
        self.digests.link_up()
        self.heads_first.link_up(self._clock.monotonic_s())
        self._wake.set()

    def compare_again(self) -> None:
        """Have the heads compared once more: by another clock, the ends may have taken other ones."""
        self.digests.link_up()
        self._wake.set()

    def _on_heads(self, changed: list[Changed]) -> None:
        self.digests.changed(changed)
        self._wake.set()
