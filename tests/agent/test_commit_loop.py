"""The commit loop with participants that hold commits: it waits for news, and does not spin."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from backhaul_agent.commit.commit_loop import CommitLoop
from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant, Draft
from backhaul_agent.commit.queues import Counters
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from backhaul_agent.hub_time.hub_clock import HubClock

FAR_S = 1e9


class Ledger:
    """Takes every commit."""

    budget = SimpleNamespace(full=False)

    async def commit(self, _: object) -> list[int]:
        return []


class Eviction:
    """Has nothing to evict."""

    def upkeep_due_s(self) -> float:
        return FAR_S

    async def make(self, _: int) -> bool:
        return False


class Holder(CommitParticipant):
    """Lets nothing be committed until it is told; counts how often it is asked."""

    def __init__(self) -> None:
        self.holding = True
        self.asked = 0

    def holds(self, now_s: float, *, pressed: bool) -> bool:
        self.asked += 1
        return self.holding

    def holds_until_s(self) -> float:
        return FAR_S

    def contribute(self, draft: Draft) -> None:
        """Nothing of its own."""

    def committed(self, draft: Draft) -> None:
        """Nothing follows."""


class Waiter(CommitParticipant):
    """Has a write that must be durable at a time, until a commit took it."""

    def __init__(self, must_s: float) -> None:
        self.must_s: float | None = must_s
        self.closed = False

    def must_by_s(self) -> float | None:
        return self.must_s

    def contribute(self, draft: Draft) -> None:
        draft.changes.meta["its"], self.must_s = 1, None

    def committed(self, draft: Draft) -> None:
        """Nothing follows."""

    def close(self) -> None:
        self.closed = True


def looped(*participants: CommitParticipant) -> tuple[CommitLoop, list[str]]:
    commits: list[str] = []
    clock = FakeClock()
    clock.advance(1.0)
    loop = CommitLoop(
        cast("Any", Ledger()),
        cast("HubClock", _Marked(clock)),
        participants,
        eviction=cast("Any", Eviction()),
        counters=Counters(),
        on_commit=lambda: commits.append("commit"),
    )
    return loop, commits


class _Marked:
    """A clock that no stamp waits for."""

    mark = 0

    def __init__(self, clock: FakeClock) -> None:
        self.now_ns, self.monotonic_s = clock.now_ns, clock.monotonic_s


async def test_a_write_that_is_overdue_while_commits_are_held_does_not_make_the_loop_spin() -> None:
    for must_s in (0.5, AT_ONCE_S):
        holder = Holder()
        loop, commits = looped(holder, Waiter(must_s))
        running = asyncio.create_task(loop.run())
        for _ in range(100):
            await asyncio.sleep(0)
        assert holder.asked < 10
        assert commits == []
        holder.holding = False
        loop.wake()
        for _ in range(10):
            await asyncio.sleep(0)
        assert commits == ["commit"]
        loop.stop()
        await running


async def test_a_loop_that_stops_while_commits_are_held_ends_once_nothing_must_be_written() -> None:
    holder, waiter = Holder(), Waiter(FAR_S)
    loop, commits = looped(holder, waiter)
    running = asyncio.create_task(loop.run())
    loop.stop()
    await running
    assert waiter.closed
    assert commits == []
