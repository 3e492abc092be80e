"""Rows handed to a running agent in bundles, each kept as a whole and once (see `replay_book`).

A bundle that got no answer is sent again: the agent knows which rows it has. What the agent refuses is
taken apart until the points are found that it refuses; the others of those rows are kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
from nats.errors import Error as NatsError

from backhaul_agent.client.batch import FRAME_POINTS, FRAME_VALUE_BYTES
from backhaul_agent.client.client import Agent
from backhaul_agent.errors import AgentError, Code, NoAgentError, NotKnownError, RefusedError
from backhaul_agent.ingest.replay_book import Bundle, KeptQuestion, KeptRecording
from backhaul_agent.ingest.replay_service import KEPT, PUT
from backhaul_codec import Point

# Small enough for the smallest `[ingest] pending_bytes_max` there may be.
BUNDLE_POINTS = 2000
BUNDLE_PARTS = 1000
# These pass: the agent catches up or comes back, the disk is freed, the hub confirms.
PASSING = {Code.BUSY, Code.LEDGER_FULL, Code.STORAGE, Code.STOPPING}
RETRY_S = 0.25
RETRY_S_MAX = 30.0


@dataclass(slots=True)
class FeedOutcome:
    """The fate of this run's points: kept, or refused for good, and why.

    ``rows``: how many of the recording, from its beginning, are kept; ``stopped``: why not all.
    """

    rows: int = 0
    kept: int = 0
    not_known: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last_refusal: str = ""
    stopped: str = ""

    @property
    def points(self) -> int:
        """How many points this run has sent."""
        return self.kept + self.refused.total() + self.not_known

    @property
    def complete(self) -> bool:
        """Whether every point was kept."""
        return not self.stopped and not self.refused and not self.not_known


class StoppedError(AgentError):
    """The agent takes no more rows now; ``unknown``: whether it may have kept those sent last."""

    def __init__(self, problem: str, *, unknown: bool) -> None:
        super().__init__(problem)
        self.unknown = unknown


class Part(NamedTuple):
    """Points of one node that go as one frame; ``untimed``: one without a time, for the agent to stamp."""

    points: Sequence[Point]
    untimed: bool = False


class Feed:
    """Feeds one recording to one agent; `put` waits while a bundle is unanswered, `finish` for all.

    Args:
        source: of which recording the rows are.
        kept: how far it is kept; None: nothing of it is.
        before: the digest of no rows.
    """

    def __init__(self, agent: Agent, source: str, kept: KeptRecording | None, before: str) -> None:
        self.outcome = FeedOutcome(rows=kept.rows if kept else 0)
        self._agent = agent
        self._source = source
        self._first = self.outcome.rows
        self._before = kept.digest if kept else before
        self._parts: list[Part] = []
        self._buffers: dict[str, list[Point]] = {}
        self._points = 0
        self._bytes = 0
        self._flying: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether the rows make a bundle."""
        return (
            self._points >= BUNDLE_POINTS
            or self._bytes >= FRAME_VALUE_BYTES
            or len(self._parts) + len(self._buffers) >= BUNDLE_PARTS
        )

    def put(self, points: Sequence[Point], *, untimed: bool = False) -> None:
        """Add a row's points; ``untimed``: their times say nothing, the agent stamps them."""
        self._points += len(points)
        for point in points:
            if isinstance(point.value, str | bytes):
                self._bytes += len(point.value)
            if untimed:
                self._parts.append(Part([point], untimed=True))
                continue
            buffer = self._buffers.setdefault(point.node, [])
            buffer.append(point)
            if len(buffer) >= FRAME_POINTS:
                self._parts.append(Part(self._buffers.pop(point.node)))

    async def send(self, last: int, digest: str) -> None:
        """Send all rows put, which go up to ``last``, not included; ``digest`` is of all before that.

        Raises:
            StoppedError: the agent refuses rows, or does not answer.
        """
        if last == self._first:
            return
        parts = [*self._parts, *map(Part, self._buffers.values())]
        bundle = partial(Bundle, self._source, self._first, last, self._before, digest)
        self._parts, self._buffers, self._points, self._bytes = [], {}, 0, 0
        self._first, self._before = last, digest
        await self.land()
        self._flying = asyncio.get_running_loop().create_task(self._keep(bundle, parts))

    async def land(self) -> None:
        """Wait until all sent rows are kept. Raises: StoppedError."""
        if self._flying is not None:
            flying, self._flying = self._flying, None
            await flying

    async def _keep(self, bundle: Callable[..., Bundle], parts: list[Part]) -> None:
        """Have the parts kept; those that are refused are halved until single points are left out."""
        refused = 0
        while True:
            packed, bad = self._packed(parts)
            if not bad:
                points = sum(len(part.points) for part in parts)
                whole = bundle(parts=packed, refused=refused)
                answer = await self._put(whole, points)
                bad = {index: (code, why) for index, code, why in answer.get("refused", ())}
                if not bad:
                    self.outcome.kept += points
                    self.outcome.rows = whole.last
                    return
            parts, left_out = self._without(parts, bad)
            refused += left_out

    def _packed(
        self, parts: list[Part]
    ) -> tuple[list[tuple[str, bytes, str]], dict[int, tuple[str, str]]]:
        """Return the parts as they are published, and which cannot be: by index, code and why."""
        packed: list[tuple[str, bytes, str]] = []
        bad: dict[int, tuple[str, str]] = {}
        for index, part in enumerate(parts):
            try:
                packed.append(self._pack(part))
            except RefusedError as error:
                bad[index] = error.code, error.message
        return packed, bad

    async def _put(self, bundle: Bundle, points: int) -> dict[str, Any]:
        try:
            return await _ask(self._agent, PUT, msgspec.msgpack.encode(bundle))
        except StoppedError as error:
            self.outcome.not_known += points if error.unknown else 0
            raise

    def _pack(self, part: Part) -> tuple[str, bytes, str]:
        if not part.untimed:
            node = part.points[0].node
            return *self._agent.frame_of(node, part.points), ""
        (point,) = part.points
        return self._agent.point_of(point.node, point.type, point.value, key=point.key)

    def _without(
        self, parts: list[Part], bad: dict[int, tuple[str, str]]
    ) -> tuple[list[Part], int]:
        """Halve the parts that are refused, and leave out single points: the rest, and how many."""
        rest: list[Part] = []
        left_out = 0
        for index, part in enumerate(parts):
            if index not in bad:
                rest.append(part)
            elif len(part.points) == 1:
                code, self.outcome.last_refusal = bad[index]
                self.outcome.refused[code] += 1
                left_out += 1
            else:
                middle = len(part.points) // 2
                rest += [Part(part.points[:middle]), Part(part.points[middle:])]
        return rest, left_out


async def kept_of(agent: Agent, source: str) -> KeptRecording | None:
    """Return how far the agent keeps a recording. Raises: StoppedError."""
    answer = await _ask(agent, KEPT, msgspec.msgpack.encode(KeptQuestion(source)))
    return msgspec.convert(answer["kept"], KeptRecording | None)


async def _ask(agent: Agent, subject: str, payload: bytes) -> dict[str, Any]:
    """Ask until there is an answer that stands; the agent keeps rows only once. Raises: StoppedError."""
    waited_s = 0.0
    while True:
        try:
            return await agent.ask(subject, payload)
        except (RefusedError, NotKnownError, NoAgentError, NatsError, OSError) as error:
            passes = not isinstance(error, RefusedError) or error.code in PASSING
            if not passes or waited_s >= RETRY_S_MAX:
                unknown = not isinstance(error, RefusedError)
                raise StoppedError(str(error), unknown=unknown) from error
        await asyncio.sleep(RETRY_S)
        waited_s += RETRY_S
