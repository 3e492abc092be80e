"""Ledgers with a limit, and the receipts of evicted messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from backhaul_agent.commit.eviction import Eviction
from backhaul_agent.ledger.age_index import Ages
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.system_events import receipt
from backhaul_codec import Opaque, decode
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Outgoing


def room_of(
    ledger: Ledger,
    clock: FakeClock | None = None,
    age_s_max: float = 0.0,
    reserve: Reserve | None = None,
) -> Eviction:
    clock = clock or FakeClock()

    def note(lane: str, epoch: int, lo: int, hi: int, reason: str, chain: bytes | None) -> Outgoing:
        return receipt(lane, epoch, lo, hi, reason, clock.now_ns(), chain)

    reserve = reserve or Reserve(ledger.path, 0)
    return Eviction(ledger, clock, Ages(age_s_max), reserve, note, ledger.commit)


async def seqs(ledger: Ledger, lane: str) -> set[int]:
    return {row.seq for row in await ledger.read(lane, 1, 100_000)}


async def receipts(ledger: Ledger) -> list[dict[str, Any]]:
    found = []
    for row in await ledger.read("live", 1, 100_000):
        if row.subject == "e.receipt":
            (point,) = decode(row.body, node="", type="receipt", key="").points
            assert isinstance(point.value, Opaque)
            found.append(msgspec.json.decode(point.value.data))
    return found


async def account_loosely(ledger: Ledger, watermarks: dict[str, int]) -> int:
    """As `account`, but confirmed receipts may have been forgotten: `evicted` still knows."""
    held = 0
    for name, lane in ledger.lanes.items():
        every = set(range(1, lane.next_seq))
        there = await seqs(ledger, name)
        gone: set[int] = set()
        for lo in range(1, lane.next_seq, 4096):
            gone |= await ledger.explained(ledger.lanes[name], lo, lo + 4095)
        assert every == there | (gone & every) | set(range(1, watermarks[name] + 1))
        assert not there & gone
        held += len(there)
    told: dict[str, set[int]] = {"live": set(), "bulk": set()}
    for found in await receipts(ledger):
        told[found["lane"]] |= set(range(found["lo"], found["hi"] + 1))
    for name, gone in told.items():
        assert not gone & await seqs(ledger, name)
    return held
