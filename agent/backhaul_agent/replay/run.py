"""One run of `backhaul-agent replay`: look at the whole recording, then read, map, pace and feed it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from backhaul_agent.client.client import Agent, connect
from backhaul_agent.errors import AgentError
from backhaul_agent.ingest.replay_book import KeptRecording
from backhaul_agent.replay.feed import Feed, FeedOutcome, StoppedError, kept_of
from backhaul_codec import Point
from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.chain import Chain, source_of
from backhaul_codec.recordings.mapping import Mapping
from backhaul_codec.recordings.points import PointsRow, RowMapper
from backhaul_codec.recordings.progress import ProgressScreen
from backhaul_codec.recordings.readers import Chunk, Recording
from backhaul_codec.recordings.times import TimeCheck
from backhaul_runtime.clock import Clock

FLUSH_S = 1.0  # at a paced replay, how long a row may wait for its bundle to fill
PAUSE_S_MAX = 5.0  # a recording may hold the nights between its trips
STEP_S = 1.0  # from a row without a time to the next, where no two rows say how far they are apart


class Replay:
    """One run over one recording.

    Args:
        opened: opens the recording; it is read more than once.
        mapping: which column is what.
        clock: to pace and to stamp by.
        speed: how many times as fast as recorded; 0: as fast as it goes.
        shift: all times so that the first row is now.
        stamp_now: take the recording in though many rows have no valid time.
        mark: what sets this run apart from all others of the same recording; empty: nothing does.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[Recording]],
        mapping: Mapping,
        clock: Clock,
        *,
        speed: float,
        shift: bool,
        stamp_now: bool,
        mark: str,
    ) -> None:
        with opened() as recording:
            self.mapper = RowMapper(mapping, text_only=recording.text_only)
        self.mark = mark
        self.outcome = FeedOutcome()
        self.rows = self.rows_before = self.points_before = self.refused_before = 0
        self._opened = opened
        self._mapping = mapping
        self._clock = clock
        self._pace = ReplayPace(speed, clock)
        self._shift = shift
        self._stamp_now = stamp_now
        self._flushed_s = clock.monotonic_s()

    async def run(self, login: dict[str, Any]) -> FeedOutcome:
        """Feed the rows that are not kept yet, and return their fate.

        Raises:
            MappingError: the recording is not what the mapping says; nothing was sent.
            AgentError: the agent is not there.
        """
        with self._opened() as recording:
            first = next((chunk for chunk in recording.chunks() if chunk.rows), None)
        async with connect(**login) as agent:
            await agent.status()  # fails at once, and clearly, where no agent is listening
            if first is None:
                return self.outcome
            source = source_of(self._mapping, first, self.mark)
            kept = await kept_of(agent, source)
            self._look(kept)
            feed = Feed(agent, source, kept, Chain(self._mapping).digest)
            self.outcome = feed.outcome
            try:
                await self._feed(feed)
            except StoppedError as error:
                self.outcome.stopped = str(error)
            except asyncio.CancelledError:
                await self._ask_how_far(agent, source)
                raise
        return self.outcome

    def _look(self, kept: KeptRecording | None) -> None:
        """Read all of the recording, before anything is sent of it.

        Raises:
            MappingError: it is to be refused.
        """
        chain = Chain(self._mapping)
        times = TimeCheck(self._mapping.time.unit, dates=self._mapping.time.dates)
        kept_rows = kept.rows if kept else 0
        found = ""
        with self._opened() as recording:
            for chunk in recording.chunks():
                for number, raw, time_ns in self.mapper.times(chunk):
                    times.note(number, raw, time_ns)
                end = chunk.first_row + chunk.rows
                if kept and chain.rows < kept_rows <= end:
                    chain.advance(chunk, kept_rows)
                    found = chain.digest
                chain.advance(chunk, end)
        self.rows = chain.rows
        if kept and found != kept.digest:
            raise MappingError(
                f"the agent keeps {kept_rows} rows of a recording that begins with this row, and these"
                f" {self.rows} are others: is it another recording, or was it changed or cut short?"
                " Nothing was sent; --as-new sends every row, those that were sent before a second time"
            )
        if not self._stamp_now:
            times.require(self._mapping.time.column, "--stamp-now has the agent stamp these rows")
        if kept:
            self.rows_before, self.points_before = kept.rows, kept.points
            self.refused_before = kept.refused

    async def _feed(self, feed: Feed) -> None:
        progress = ProgressScreen(self.rows, self.rows_before, self._clock.monotonic_s)
        chain = Chain(self._mapping)
        offset_ns: int | None = None if self._shift else 0
        with self._opened() as recording:
            for chunk in recording.chunks():
                for row in self.mapper.rows(chunk, self.rows_before):
                    if row.number >= self.rows:
                        break  # it was added since all was looked at
                    if self._pace.speed:
                        await self._until_due(feed, chain, chunk, row)
                        progress.show(feed.outcome.rows, row.time_ns)
                    if offset_ns is None and row.time_ns is not None:
                        offset_ns = self._clock.now_ns() - row.time_ns
                    feed.put(_shifted(row.points, offset_ns or 0), untimed=row.time_ns is None)
                    if feed.full:
                        await self._send(feed, chain, chunk, row.number + 1)
                        progress.show(feed.outcome.rows, row.time_ns)
                end = min(chunk.first_row + chunk.rows, self.rows)
                await self._send(feed, chain, chunk, end)
                if end == self.rows:
                    break
        await feed.land()
        progress.end()

    async def _send(self, feed: Feed, chain: Chain, chunk: Chunk, last: int) -> None:
        chain.advance(chunk, last)
        if last > self.rows_before:
            await feed.send(last, chain.digest)

    async def _until_due(self, feed: Feed, chain: Chain, chunk: Chunk, row: PointsRow) -> None:
        """Wait until a row is due; earlier rows do not wait for it."""
        wait_s = self._pace.wait_s(row.time_ns)
        if self._clock.monotonic_s() - self._flushed_s >= FLUSH_S or wait_s >= FLUSH_S:
            await self._send(feed, chain, chunk, row.number)
            self._flushed_s = self._clock.monotonic_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _ask_how_far(self, agent: Agent, source: str) -> None:
        """Learn which rows are kept: the answer to the last ones may be under way."""
        with contextlib.suppress(AgentError):
            kept = await kept_of(agent, source)
            if kept is not None:
                self.outcome.rows = kept.rows
                self.outcome.kept = kept.points - self.points_before


@dataclass
class ReplayPace:
    """When the next row is due: recorded gaps, divided by the speed, none over PAUSE_S_MAX.

    A row without a time follows as its predecessors followed each other, and takes nothing from the
    gap between the rows with a time around it.
    """

    speed: float
    clock: Clock
    due_s: float | None = None
    timed_due_s: float = 0.0
    last_ns: int | None = None
    step_s: float = STEP_S

    def wait_s(self, time_ns: int | None) -> float:
        """Return how long to wait before a row; ``time_ns`` None: it has none.

        Time going back costs nothing.
        """
        if not self.speed:
            return 0.0
        now_s = self.clock.monotonic_s()
        if self.due_s is None:
            self.due_s = self.timed_due_s = now_s
        elif time_ns is None:
            self.due_s += self.step_s / self.speed
        if time_ns is not None:
            self._timed(time_ns, self.due_s)
        return max(0.0, self.due_s - now_s)

    def _timed(self, time_ns: int, due_s: float) -> None:
        if self.last_ns is not None:
            recorded_s = max(0.0, (time_ns - self.last_ns) / 1e9)
            due_s = max(due_s, self.timed_due_s + min(recorded_s / self.speed, PAUSE_S_MAX))
            self.step_s = min(recorded_s, PAUSE_S_MAX) or self.step_s
        self.due_s = self.timed_due_s = due_s
        self.last_ns = time_ns


def _shifted(points: list[Point], offset_ns: int) -> list[Point]:
    if not offset_ns:
        return points
    return [replace(point, time=point.time + offset_ns) for point in points]
