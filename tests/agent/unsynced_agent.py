"""An agent's ledger, writer and clock while the time is not known yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.commit.contents import ConfigWrite, Points
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import ClockConfig, Config, DeviceConfig, FrameConfig
from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.ledger.rows import Pending
from backhaul_agent.time_sync.correct_stamps import (
    SETTLE_ROWS,
    Corrections,
    StampCorrector,
    settled,
)
from backhaul_codec import Point, decode
from tests.agent.ledgers import FailingDisk, open_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import LedgerRow
    from tests.support.agent_clock import FakeClock

S = 10**9
NOW = 1_780_000_000 * S
CONFIG = Config(
    device=DeviceConfig(id="VID-001", token="tok"),
    frame=FrameConfig(points_max=3),
    clock=ClockConfig(drift_ppm=0.0),
)


def pending(subject: str, body: bytes) -> Pending:
    return Pending(1, subject, body, 9)


class Agent:
    """A ledger, a writer and a corrector on a clock that starts in 1970; the writer is driven by hand."""

    def __init__(self, ledger: Ledger, system: FakeClock) -> None:
        self.ledger, self.system = ledger, system
        self.clock = HubClock(system, CONFIG.clock)
        self.writer = Writer(ledger, CONFIG, self.clock, on_commit=lambda: None)
        self.corrector = StampCorrector(ledger, self.writer, self.clock)

    @classmethod
    async def start(cls, path: Path, system: FakeClock, disk: FailingDisk, boot: str) -> Agent:
        agent = cls(await open_ledger(path, opener=disk), system)
        agent.clock.start(boot, await agent.ledger.boots())
        await agent.writer.restore()
        return agent

    async def keep(self, content: Points | ConfigWrite) -> None:
        self.writer.submit(QueuedPublish(content, 10, True, lambda *_: None))
        await self.commit()

    async def commit(self) -> None:
        await self.writer._commit(flush=False)

    async def stamp(self, number: int, *, live: bool = False) -> int:
        """Keep a point stamped now; return the true time."""
        point = Point("n", "t", self.clock.now_ns(), float(number))
        quality = self.clock.quality
        await self.keep(Points("n", [point], live, self.clock.mark, quality))
        return NOW + self.system.steady_ns()

    async def settle(self, *, transactions: int | None = None) -> None:
        """Do what `StampCorrector` does, or only its first so many transactions, as before a crash."""
        await self.commit()
        corrections = Corrections(self.clock)
        while transactions is None or transactions > 0:
            rows = await self.ledger.pending(self.clock.marks, SETTLE_ROWS)
            if not rows:
                return
            changes = settled(rows, corrections)
            self.writer._deferred._owed.inbound.append(changes)
            await self.commit()
            self.corrector._count(changes)
            transactions = None if transactions is None else transactions - 1

    def sync(self) -> None:
        steady = self.system.steady_ns()
        self.clock.adopt(ClockSample(steady, NOW + steady, NOW + steady, steady))

    async def rows(self) -> list[LedgerRow]:
        found: list[LedgerRow] = []
        for lane in ("live", "bulk"):
            found += await self.ledger.read(lane, 1, 10_000)
        return found

    async def times(self) -> dict[float, int]:
        """Return the time of each numbered point that is in a message."""
        found: dict[float, int] = {}
        for row in await self.rows():
            if row.subject[0] in "bp":
                for point in decode(row.body, node="n", type="t", key="").points:
                    assert isinstance(point.value, float)
                    assert point.value not in found
                    found[point.value] = point.time
        return found
