"""Which points go into which message: a pure core, no I/O.

Acknowledging and framing are two things. A point is acknowledged as soon as a commit has made it
durable, but on a link a message costs as much as hundreds of points. So points that do not fill a message
yet are *staged*: durable rows, also kept in memory. All nodes that share a lane go into one *bundle*; a node
with a lane of its own has frames. When a buffer is full (points or bytes) or old enough, one transaction
writes the message and deletes the staged rows it replaces.

The order in which a series' points arrived is kept, across single points and whole client frames. A message
says one thing about the clock, so points whose stamps differ in that go into different ones: while the
vehicle does not know the time, those that it stamped itself and those that came with a stamp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from backhaul_agent.commit.contents import ConfigWrite, Event, Frame, Points, Rows
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing, Staged
from backhaul_codec import CodecError, Opaque, Point, encode_bundle, encode_frame, encode_point
from backhaul_codec.subjects import BUNDLE_SUBJECT, frame_subject, point_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from backhaul_agent.commit.contents import Content
    from backhaul_agent.config import FrameConfig

POINT_BYTES = 16  # a rough weight of a point's time, series index and number
BUFFERED_POINTS_MAX = 50_000  # over all nodes; past it every buffer is framed, however small
ROUNDS_SORTED = 2  # of so few a bundle has one order always: a dictionary knows most of it then
_by_series = attrgetter("node", "type", "key")


class Bin(NamedTuple):
    """Which points go into one message: with stamps of one kind (see `Points`).

    ``node``: the one that has a lane of its own; None: all that share one.
    """

    node: str | None = None
    boot: int = 0
    clock: int = 0


@dataclass(slots=True)
class Buffer:
    """What a bin has in memory: staged rows' points first, then those not staged yet."""

    opened_s: float
    points: list[Point] = field(default_factory=list)
    bytes: int = 0
    staged_ids: list[int] = field(default_factory=list)
    staged_points: int = 0

    def copy(self) -> Buffer:
        """Return a copy that can be changed without touching this one."""
        return Buffer(
            self.opened_s, self.points[:], self.bytes, self.staged_ids[:], self.staged_points
        )


@dataclass(slots=True)
class FramePlan:
    """One transaction to be, and the buffers as they are once it is durable."""

    changes: LedgerChanges
    buffers: dict[Bin, Buffer]
    staged_bins: list[Bin] = field(default_factory=list)
    lost_points: int = 0


class Framer:
    """Turns arrivals into transactions. `plan` changes nothing; `applied` does.

    So a commit that fails is simply not applied, and its arrivals are refused. ``own``: tells whether a
    node has a lane of its own.
    """

    def __init__(
        self, limits: FrameConfig, own: Callable[[str], bool] = lambda _node: False
    ) -> None:
        self.age_s_max = limits.age_s_max  # longer where the link's budget is short
        self._limits = limits
        self._own = own
        self._buffers: dict[Bin, Buffer] = {}
        self.buffered_points = 0

    def restore(
        self,
        node: str,
        row_id: int,
        points: Sequence[Point],
        now_s: float,
        boot: int = 0,
        clock: int = 0,
    ) -> None:
        """Take back a staged row found at the start."""
        buffer = self._buffers.setdefault(self._bin(node, boot, clock), Buffer(now_s))
        buffer.points += points
        buffer.bytes += sum(map(_weight, points))
        buffer.staged_ids.append(row_id)
        buffer.staged_points += len(points)
        self.buffered_points += len(points)

    def _bin(self, node: str, boot: int, clock: int) -> Bin:
        return Bin(node if self._own(node) else None, boot, clock)

    def deadline_s(self) -> float | None:
        """Return when the oldest buffer must be framed, on the monotonic clock."""
        if not self._buffers:
            return None
        return min(buffer.opened_s for buffer in self._buffers.values()) + self.age_s_max

    def plan(
        self,
        arrivals: Iterable[Content],
        now_s: float,
        *,
        flush: bool = False,
        mark: int = 0,
        changes: LedgerChanges | None = None,
    ) -> FramePlan:
        """Return the transaction that makes arrivals durable and frames what is due: in ``changes``.

        With ``flush`` every buffer is framed, whatever its age. ``mark``: the boot that stamps wait
        for now; what waits for another is framed, so that nothing is left to be put right but
        messages.
        """
        plan = FramePlan(LedgerChanges() if changes is None else changes, {})
        self._cut_marked(plan, now_s, mark)
        for arrival in arrivals:
            if isinstance(arrival, Rows):
                plan.changes.meta |= arrival.noted
                plan.changes.expected |= arrival.expected
                for part in arrival.parts:
                    self._take(plan, part, now_s)
            else:
                self._take(plan, arrival, now_s)
        if flush or self.buffered_points > BUFFERED_POINTS_MAX:
            due = dict.fromkeys([*self._buffers, *plan.buffers])
        else:
            oldest_s = now_s - self.age_s_max
            due = {n: None for n, buffer in self._buffers.items() if buffer.opened_s <= oldest_s}
        for bin_ in due:
            self._cut(plan, bin_, now_s)
        self._cut_marked(plan, now_s, mark)
        self._stage(plan)
        return plan

    def applied(self, plan: FramePlan, staged_ids: Sequence[int]) -> None:
        """Take over a plan whose transaction is durable; ids of its staged rows in order."""
        for bin_, row_id in zip(plan.staged_bins, staged_ids, strict=True):
            plan.buffers[bin_].staged_ids.append(row_id)
        for bin_, buffer in plan.buffers.items():
            before = self._buffers.pop(bin_, None)
            self.buffered_points += len(buffer.points) - (len(before.points) if before else 0)
            if buffer.points:
                buffer.staged_points = len(buffer.points)
                self._buffers[bin_] = buffer

    def _take(
        self, plan: FramePlan, arrival: Points | Frame | ConfigWrite | Event, now_s: float
    ) -> None:
        if isinstance(arrival, ConfigWrite):
            plan.changes.messages += arrival.messages
        elif isinstance(arrival, Event):
            plan.changes.messages.append(arrival.message)
        elif isinstance(arrival, Frame):
            self._pass_on(plan, arrival, now_s)
        elif arrival.live:
            plan.changes.messages += map(partial(_live, boot=arrival.boot), arrival.points)
        else:
            self._add(plan, arrival, now_s)

    def _buffer(self, plan: FramePlan, bin_: Bin, now_s: float) -> Buffer:
        if bin_ not in plan.buffers:
            known = self._buffers.get(bin_)
            plan.buffers[bin_] = known.copy() if known else Buffer(now_s)
        return plan.buffers[bin_]

    def _cut_marked(self, plan: FramePlan, now_s: float, mark: int) -> None:
        for bin_ in dict.fromkeys([*self._buffers, *plan.buffers]):
            if bin_.boot and bin_.boot != mark:
                self._cut(plan, bin_, now_s)

    def _pass_on(self, plan: FramePlan, frame: Frame, now_s: float) -> None:
        """Add a client's frame as it is, after all of its node that came before."""
        node = self._bin(frame.node, 0, 0).node
        for bin_ in dict.fromkeys([*self._buffers, *plan.buffers]):
            buffer = plan.buffers.get(bin_) or self._buffers[bin_]
            if bin_.node == node and any(point.node == frame.node for point in buffer.points):
                self._cut(plan, bin_, now_s)
        for body, times in ((frame.body, frame.times), *frame.rest):
            message = Outgoing("bulk", frame_subject(frame.node), body)
            plan.changes.messages.append(message._replace(times=times, boot=frame.boot))

    def _add(self, plan: FramePlan, arrival: Points, now_s: float) -> None:
        bin_ = self._bin(arrival.node, arrival.boot, arrival.clock)
        buffer = self._buffer(plan, bin_, now_s)
        for point in arrival.points:
            weight = _weight(point)
            if buffer.bytes + weight > self._limits.bytes_max and buffer.points:
                self._cut(plan, bin_, now_s)
                buffer = plan.buffers[bin_]
            buffer.points.append(point)
            buffer.bytes += weight
            if len(buffer.points) >= self._limits.points_max:
                self._cut(plan, bin_, now_s)
                buffer = plan.buffers[bin_]

    def _cut(self, plan: FramePlan, bin_: Bin, now_s: float) -> None:
        """Write a buffer as messages and leave an empty one."""
        buffer = self._buffer(plan, bin_, now_s)
        for points in self._pieces(buffer):
            self._frame(plan, bin_, points)
        plan.changes.unstage += buffer.staged_ids
        plan.buffers[bin_] = Buffer(now_s)

    def _pieces(self, buffer: Buffer) -> Iterator[list[Point]]:
        """Yield a buffer's points, as many at a time as a message may have: restored rows may hold more."""
        limits, points, size = self._limits, buffer.points, 0
        if len(points) > limits.points_max or buffer.bytes > limits.bytes_max:
            points = []
            for point in buffer.points:
                weight = _weight(point)
                if points and (
                    len(points) == limits.points_max or size + weight > limits.bytes_max
                ):
                    yield points
                    points, size = [], 0
                points.append(point)
                size += weight
        if points:
            yield points

    def _frame(self, plan: FramePlan, bin_: Bin, points: list[Point]) -> None:
        """Add one message; points that cannot be encoded are split off one by one, and counted.

        Ingest has checked every point, so this is a net under our own mistakes: an acknowledged
        point that poisons its message must not stop the whole ledger.
        """
        try:
            subject, body = _encoded(points, bin_)
        except CodecError:
            if len(points) == 1:
                plan.lost_points += 1
                return
            middle = len(points) // 2
            self._frame(plan, bin_, points[:middle])
            self._frame(plan, bin_, points[middle:])
            return
        stamps = [point.time for point in points]
        message = Outgoing("bulk", subject, body, boot=bin_.boot)
        plan.changes.messages.append(message._replace(times=(min(stamps), max(stamps))))

    def _stage(self, plan: FramePlan) -> None:
        for bin_, buffer in plan.buffers.items():
            of_nodes: dict[str, list[Point]] = {}
            for point in buffer.points[buffer.staged_points :]:
                of_nodes.setdefault(point.node, []).append(point)
            for node, fresh in of_nodes.items():
                staged = Staged(node, len(fresh), pack(fresh), bin_.boot, bin_.clock)
                plan.changes.staged.append(staged)
                plan.staged_bins.append(bin_)


def _encoded(points: list[Point], bin_: Bin) -> tuple[str, bytes]:
    """Return subject and body of a message. Raises: CodecError."""
    if bin_.node is not None:
        body = encode_frame(points, epoch=0, seq=0, clock=bin_.clock)
        return frame_subject(bin_.node), body
    bodies = (encode_bundle(each, epoch=0, seq=0, clock=bin_.clock) for each in orders(points))
    return BUNDLE_SUBJECT, min(bodies, key=len)


def orders(points: list[Point]) -> list[list[Point]]:
    """Return the orders of a bundle's points of which one packs best; in each, those of one series stay in theirs.

    Series that were read as often as one another, as those of a gateway are, come round by round: stamps stand still
    within a round. The points of others come side by side, with steps and values alike. Where hardly two points have
    one stamp, as on a bus that is polled in turn, they may also stay as they came: the steps of one time column are small.
    """
    series = [list(each) for _, each in groupby(sorted(points, key=_by_series), key=_by_series)]
    rounds, longest = min(map(len, series)), max(map(len, series))
    if longest > rounds + 1:
        sorted_ = [point for each in series for point in each]
    else:
        by_round = chain.from_iterable(zip(*(each[:rounds] for each in series), strict=True))
        sorted_ = [*by_round, *(point for each in series for point in each[rounds:])]
    if longest <= ROUNDS_SORTED or len({point.time for point in points}) <= longest:
        return [sorted_]
    return [sorted_, points]


def _live(point: Point, *, boot: int) -> Outgoing:
    subject = point_subject(point.node, point.type, point.key)
    body = encode_point(point, epoch=0, seq=0)
    return Outgoing("live", subject, body, times=(point.time, point.time), boot=boot)


def _weight(point: Point) -> int:
    value = point.value
    if isinstance(value, str | bytes):
        return POINT_BYTES + len(value)
    return POINT_BYTES + (len(value.data) if isinstance(value, Opaque) else 0)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, str, int, Any, int, str]])


def pack(points: Iterable[Point]) -> bytes:
    """Return the points of one node as MessagePack: ten times quicker than a frame of a few.

    The ledger keeps a checksum beside it. An opaque value is a pair of dtype and bytes.
    """
    return _encoder.encode(
        [
            (
                point.type,
                point.key,
                point.time,
                (point.value.dtype, point.value.data)
                if isinstance(point.value, Opaque)
                else point.value,
                point.tombstone,
                point.origin,
            )
            for point in points
        ]
    )


def unpack(node: str, body: bytes) -> list[Point]:
    """Return the points of a staged row.

    Raises:
        msgspec.DecodeError: the row does not hold what `pack` wrote.
    """
    return [
        Point(
            node=node,
            type=type_,
            key=key,
            time=time,
            value=Opaque(*value) if isinstance(value, list) else value,
            tombstone=tombstone,
            origin=origin,
        )
        for type_, key, time, value, tombstone, origin in _decoder.decode(body)
    ]
