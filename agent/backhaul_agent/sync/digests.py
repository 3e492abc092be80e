"""Whether both ends hold the same heads, and the words sent where they do not: a pure core, no I/O.

The vehicle tells the root of its digests (``e.digest``); a hub whose root is another one answers with
its digest of each node (``s.digest``). The vehicle then sends its heads of nodes that differ, and asks
for the hub's. Merging makes both the same, so in whatever order things arrive it comes to an end.

What was written here after the root was told may still be on its way, and differs for that reason only:
it is not sent a second time, the root is told again instead. So may what waits in a node's own lane, which
the root overtakes: then the root is told again once that is at the hub. Nor is the same answer given twice while
the link stays up: where the hub will not take a head, sending it again does not help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from backhaul_agent.commit.heads import Changed, HeadKeeper
from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.ledger.rows import Inbound, Inward, Outgoing
from backhaul_agent.ledger.system_events import event
from backhaul_agent.sync.writes import message_of
from backhaul_codec.kinds import LIVE
from backhaul_codec.rules import blob_size
from backhaul_codec.state.merge import Head, HeadKey, differing
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_codec.subjects import node_lane, node_of_lane
from backhaul_codec.wire.addressed import Addressed
from backhaul_runtime.clock import Clock

SETTLE_S = 1.0  # after something of the hub's was merged: more may be coming
ROUNDS_MAX = 20  # roots told in a row because of what was written meanwhile
FRAME_POINTS = 200
FRAME_BYTES = 64 * 1024


class _Digests(msgspec.Struct, frozen=True):
    """The hub's word: its digest of each node."""

    nodes: dict[str, str]


_read = Reader(_Digests).read


class DigestAnswer(NamedTuple):
    """The answer to the hub's digests.

    ``differing``: nodes whose heads are to be sent, and the hub's asked for; our digest and the hub's.
    ``tell``: whether to say again what ours come to.
    """

    differing: dict[str, tuple[str | None, str | None]]
    tell: bool


class Digests:
    """Compares. `due_s` says when the root is to be told next, `root` the contents then.

    ``settled``: whether the times of heads stay as they are. The hub may ask before they do, and one
    that is sent is not corrected later; then the root is told once they have settled.
    """

    def __init__(
        self,
        keeper: HeadKeeper,
        clock: Clock,
        lanes: Mapping[str, CommittedLane] | None = None,
        settled: Callable[[], bool] = lambda: True,
    ) -> None:
        self.due_s: float | None = None  # on the monotonic clock
        self.differing: int | None = None  # nodes, when the hub last said so; None: it did not
        self._keeper = keeper
        self._clock = clock
        self._lanes = lanes or {}
        self._settled = settled
        self._written: set[str] = set()  # nodes with a head that the hub may not have yet
        self._own: dict[str, int] = {}  # the same in their own lanes, up to this seq
        self._awaited: dict[str, int] = {}  # of those: what is to arrive before the root is told
        self._answered: dict[str, tuple[str | None, str | None]] = {}
        self._rounds = 0

    def status(self) -> dict[str, Any]:
        """Return the digests' part of the status of heads.

        Nodes that differed when the hub last compared and found any; None: it has not complained since.
        """
        return {"nodes_differing": self.differing}

    def link_up(self) -> None:
        """Note that the link came up: both ends may have changed since they last spoke."""
        self._answered.clear()
        self._awaited.clear()
        self._rounds = 0
        for name, lane in self._lanes.items():
            if (node := node_of_lane(name)) is not None:
                self._own[node] = lane.last_seq
        self.due_s = self._clock.monotonic_s()

    def changed(self, heads: Iterable[Changed]) -> None:
        """Note heads that have changed: written here, or merged from the hub."""
        for key, head in heads:
            if head.origin:
                self._tell_soon()
            elif (lane := self._keeper.lanes.of_points(key.node)) in self._lanes and lane != LIVE:
                self._own[key.node] = self._lanes[lane].last_seq
            else:
                self._written.add(key.node)

    def look(self) -> None:
        """Have the root told again, once the awaited heads have arrived. To be called now and then."""
        if self._awaited and all(self._arrived(*each) for each in self._awaited.items()):
            self._awaited.clear()
            self._tell_soon()

    def root(self) -> Outgoing:
        """Return the event that tells the root; it is told now."""
        self.due_s = self.differing = None
        self._written.clear()
        heads = self._keeper.heads
        return self._event({"root": heads.root(), "count": len(heads)})

    def compare(self, theirs: dict[str, str]) -> DigestAnswer:
        """Return the answer to the hub's digests."""
        mine = self._keeper.heads.digests()
        nodes = differing(mine, theirs)
        self.differing = len(nodes)
        self._own = {n: seq for n, seq in self._own.items() if not self._arrived(n, seq)}
        moving = (self._written | self._own.keys()).intersection(nodes)
        self._rounds = self._rounds + 1 if moving else 0
        if self._rounds > ROUNDS_MAX:  # written to without a pause: better twice than never
            moving = set()
        answer = {}
        for node in nodes:
            pair = mine.get(node), theirs.get(node)
            if node not in moving and self._answered.get(node) != pair:
                answer[node] = pair
        self._awaited = {node: self._own[node] for node in moving & self._own.keys()}
        return DigestAnswer(answer, tell=not nodes or bool(answer or moving - self._awaited.keys()))

    def answered(self, answer: DigestAnswer) -> None:
        """Note that an answer was given: it is not given again while the link stays up."""
        self._answered |= answer.differing

    def on_message(self, message: Inbound, changes: Inward) -> None:
        """Take in ``s.digest``: the answer goes out with the commit of its position.

        Raises:
            ValueError: it is none.
        """
        if not message.fresh:
            return
        try:
            theirs = _read(message.data).nodes
        except JsonError as error:
            raise ValueError(f"no digests: {error}") from error
        if not self._settled():
            self._tell_soon()
            return
        answer = self.compare(theirs)
        for node in answer.differing:
            # The hub refuses a message as a whole for one stamp from the future.
            for heads in self._keeper.by_future(node):
                changes.messages += messages_of(heads)
        if answer.differing:
            changes.messages.append(self._event({"want": list(answer.differing)}))
            # Not before: a batch of which this is part may be given up, and is read again then.
            changes.on_durable.append(lambda: self.answered(answer))
        if answer.tell:
            self._tell_soon()

    def _arrived(self, node: str, seq: int) -> bool:
        return self._lanes[node_lane(node)].watermark >= seq

    def _tell_soon(self) -> None:
        if self.due_s is None:
            self.due_s = self._clock.monotonic_s() + SETTLE_S

    def _event(self, body: dict[str, Any]) -> Outgoing:
        return event("digest", body, self._clock.now_ns())


def messages_of(heads: dict[HeadKey, Head]) -> Iterator[Outgoing]:
    """Yield messages that carry a node's heads, those of each of its edges apart.

    They say that their points were sent before: the history has each once.
    """
    groups: dict[str, list[Addressed]] = {}
    for key, head in heads.items():
        groups.setdefault(key.parent, []).append(Addressed(key.parent, head.to_point(key)))
    for parent, addressed in groups.items():
        for few in _portions(addressed):
            yield message_of(parent, few, said_again=True)


def _portions(addressed: list[Addressed]) -> Iterator[list[Addressed]]:
    few: list[Addressed] = []
    size = 0
    for each in addressed:
        size += blob_size(each.point.value)
        if few and (len(few) >= FRAME_POINTS or size > FRAME_BYTES):
            yield few
            few, size = [], blob_size(each.point.value)
        few.append(each)
    yield few
