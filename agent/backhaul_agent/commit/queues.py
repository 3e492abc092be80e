"""The queue of programs' publishes, on their way into the ledger. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from backhaul_agent.commit.contents import ConfigWrite, Points, value_class
from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ledger.eviction_policy import TELEMETRY, class_of
from backhaul_codec.subjects import BUNDLE_SUBJECT
from backhaul_codec.wire.addressed import Addressed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backhaul_agent.commit.contents import Content
    from backhaul_agent.commit.framer import FramePlan, Framer
    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.config import IngestConfig
    from backhaul_agent.hub_time.hub_clock import HubClock
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.ledger.rows import Outgoing

BUNDLES_MAX = 128
"""Kept for their newest values: nodes that speak once a minute are in them still."""
BUNDLES_BYTES_MAX = 1 << 20
"""Of them all, but for the newest: one may have half a megabyte of texts, and this is a small machine."""
log = structlog.get_logger("writer")


class QueuedPublish(NamedTuple):
    """Points on their way in; ``answer`` is called once, with None when they are durable."""

    content: Content
    size: int
    waited_for: bool
    answer: Callable[[Content, RefusedError | None], None]

    def marked(self, mark: int) -> QueuedPublish:
        """Return it with a write's messages marked: their stamps must be put right later."""
        if not mark or not isinstance(self.content, ConfigWrite):
            return self
        messages = [message._replace(boot=mark) for message in self.content.messages]
        return self._replace(content=replace(self.content, messages=messages))


def points_in(content: Content) -> int:
    """Return how many points an arrival holds."""
    return len(content.points) if isinstance(content, Points) else content.points


def heads_in(content: Content) -> Sequence[Addressed]:
    """Return the points of an arrival that heads are made of: state and config, not telemetry."""
    if isinstance(content, Points):
        return [Addressed("", point) for point in content.points] if content.live else []
    return content.addressed if isinstance(content, ConfigWrite) else []


@dataclass(slots=True)
class Counters:
    """How much the queue and the writer have done since the start."""

    points_kept: int = 0
    points_refused: int = 0
    commits: int = 0
    commits_failed: int = 0
    frames: int = 0
    last_error: str = ""

    def status(self) -> dict[str, Any]:
        """Return the counters of the status."""
        return {
            "points_kept": self.points_kept,
            "points_refused_by_storage": self.points_refused,
            "commits": self.commits,
            "commits_failed": self.commits_failed,
            "frames": self.frames,
        }


class PublishQueues(CommitParticipant):
    """Arrivals until a commit takes them, and the framer that takes them then.

    ``wake`` has the commit task look at `must_by_s` again. ``stage_by_s``: when that must be durable for
    which nobody waits, on the monotonic clock; None where nothing is there.
    """

    def __init__(
        self,
        limits: IngestConfig,
        framer: Framer,
        ledger: Ledger,
        clock: HubClock,
        counters: Counters,
        wake: Callable[[], None],
    ) -> None:
        self.stage_by_s: float | None = None
        self.framer = framer
        self._limits = limits
        self._ledger = ledger
        self._clock = clock
        self._counters = counters
        self._wake = wake
        self._closed = False
        self._pending: list[QueuedPublish] = []
        self._pending_bytes = 0
        self._waiting = 0
        self._taken: list[QueuedPublish] = []
        self._plan: FramePlan | None = None
        self._telemetry: list[Outgoing] = []  # of the last draft, before it is packed
        self._newest_frames: dict[str, bytes] = {}
        self._newest_bundles: deque[bytes] = deque()
        self._newest_bytes = 0

    def submit(self, arrival: QueuedPublish) -> None:
        """Queue points for the next commit.

        Raises:
            RefusedError: stopping, busy, or no room for its like; nothing was queued.
        """
        limits = self._limits
        if self._closed:
            raise RefusedError(Code.STOPPING, "the agent is stopping")
        if (
            len(self._pending) >= limits.pending_messages_max
            or self._pending_bytes + arrival.size > limits.pending_bytes_max
        ):
            raise RefusedError(Code.BUSY, "more arrives than the disk takes: try again shortly")
        budget = self._ledger.budget
        if budget.full and (refusal := budget.refusal(value_class(arrival.content))):
            raise refusal
        self._pending.append(arrival.marked(self._clock.mark))
        self._pending_bytes += arrival.size
        # Half full is a reason to commit too: a burst that nobody waits for must not be refused
        # while the disk is idle.
        crowded = (
            2 * len(self._pending) >= limits.pending_messages_max
            or 2 * self._pending_bytes >= limits.pending_bytes_max
        )
        if arrival.waited_for or crowded:
            self._waiting += 1
            self._wake()
        elif self.stage_by_s is None:
            self.stage_by_s = self._clock.monotonic_s() + limits.stage_s_max
            self._wake()  # so that the waiting commit task learns the new deadline

    def close(self) -> None:
        """Refuse all arrivals from now on."""
        self._closed = True

    def must_by_s(self) -> float | None:
        """Return when the arrivals must be durable."""
        if self._waiting or (self._pending and self._closed):
            return AT_ONCE_S
        return self.stage_by_s

    def take_newest_frames(self) -> list[bytes]:
        """Return the newest bundles and each node's newest frame since this was asked last, with settled stamps."""
        frames = [*self._newest_bundles, *self._newest_frames.values()]
        self._newest_frames, self._newest_bytes = {}, 0
        self._newest_bundles.clear()
        return frames

    def due_s(self) -> float | None:
        """Return when the oldest points must be framed."""
        return self.framer.deadline_s()

    def contribute(self, draft: Draft) -> None:
        """Have all arrivals kept, after what the gate let in; frame what is due."""
        self._taken, self._pending = self._pending, []
        self._pending_bytes, self._waiting, self.stage_by_s = 0, 0, None
        for row, points in draft.cleared:
            self.framer.restore(row.node, row.id, points, draft.now_s, row.boot, row.clock)
        draft.contents += [arrival.content for arrival in self._taken]
        self._plan = self.framer.plan(
            *(draft.contents, draft.now_s),
            flush=draft.flush,
            mark=draft.boot,
            changes=draft.changes,
        )
        messages = draft.changes.messages
        self._telemetry = [each for each in messages if class_of(each.subject) == TELEMETRY]
        draft.on_durable.append(self._answer)

    def committed(self, draft: Draft) -> None:
        """Take over the framed and the staged points."""
        plan = self._plan
        assert plan is not None
        self.framer.applied(plan, draft.staged_ids)
        if plan.lost_points:
            log.error("points_not_framed", points=plan.lost_points)
        self._counters.frames += len(self._telemetry)
        for message in [each for each in self._telemetry if not each.boot]:
            if message.subject == BUNDLE_SUBJECT:
                self._keep_newest(message.body)
            else:
                self._newest_frames[message.subject] = message.body

    def _keep_newest(self, bundle: bytes) -> None:
        kept = self._newest_bundles
        kept.append(bundle)
        self._newest_bytes += len(bundle)
        while len(kept) > BUNDLES_MAX or (len(kept) > 1 and self._newest_bytes > BUNDLES_BYTES_MAX):
            self._newest_bytes -= len(kept.popleft())

    def put_back(self, refusal: RefusedError) -> None:
        """Refuse all arrivals: a waiting program may try again."""
        for arrival in self._taken:
            self._counters.points_refused += points_in(arrival.content)
            arrival.answer(arrival.content, refusal)

    def _answer(self) -> None:
        for arrival in self._taken:
            self._counters.points_kept += points_in(arrival.content)
            arrival.answer(arrival.content, None)
