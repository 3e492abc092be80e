"""History at the edge, the deciding part: a pure core, no I/O.

A request names a series and a stretch of time. What is stored comes as runs of points, each known to
begin no earlier than some time; `Merge` puts them into one row, oldest first, and stops at the limit
between two stamps, so that a next request can go on exactly there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec import Opaque, Value
from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.rfc3339 import time_ns_of
from backhaul_codec.strict.json import Reader

PENDING_BYTES_MAX = 64 << 20
POINTS_DEFAULT = 10_000
POINTS_MAX = 250_000  # of one answer; the asker goes on from "next"
CHUNK_POINTS = 2000
CHUNK_BYTES = 128 * 1024
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
Run = tuple["Sequence[int]", "Sequence[Value]"]


class HistoryRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The payload of ``agent.history``. ``from`` is in, ``to`` is out; ns or RFC 3339 with a zone."""

    node: str
    type: str
    key: str = ""
    from_: int | str = msgspec.field(default=TIME_MIN, name="from")
    to: int | str = TIME_MAX
    limit: int = POINTS_DEFAULT


class HistoryQuestion(NamedTuple):
    """A checked request; times in ns since the Unix epoch."""

    node: str
    type: str
    key: str
    from_ns: int
    to_ns: int
    limit: int


_read = Reader(HistoryRequest).read


def read_request(data: bytes) -> HistoryQuestion:
    """Read a request.

    Raises:
        RefusedError: with the field, and what is allowed there.
    """
    asked = read_program_json(_read, data)
    if not asked.node or not asked.type:
        raise RefusedError(Code.BAD_FIELD, "node and type must not be empty")
    if not 1 <= asked.limit <= POINTS_MAX:
        raise RefusedError(Code.BAD_FIELD, f"limit {asked.limit} is not in 1..{POINTS_MAX}")
    from_ns, to_ns = _time(asked.from_, "from"), _time(asked.to, "to")
    return HistoryQuestion(asked.node, asked.type, asked.key, from_ns, to_ns, asked.limit)


def _time(time: int | str, what: str) -> int:
    if isinstance(time, str):
        try:
            return time_ns_of(time)
        except ValueError as error:
            raise RefusedError(Code.BAD_TIME, f"{what}: {error}") from None
    if TIME_MIN <= time <= TIME_MAX:
        return time
    raise RefusedError(Code.BAD_TIME, f"{what}: {time} does not fit 64 bits of nanoseconds")


class Merge:
    """Orders runs of points by time. Feed runs in the order of the earliest time they may have.

    ``next_ns``: where a next request goes on, None where everything was found. ``points``: how
    many were given out. Never holds more than about twice the limit.
    """

    def __init__(self, limit: int) -> None:
        self.points = 0
        self.next_ns: int | None = None
        self._limit = limit
        self._times: list[int] = []
        self._values: list[Value] = []
        self._sorted = True
        self._sort_at = 4096
        self._bytes = 0

    @property
    def done(self) -> bool:
        """Whether the limit is reached: nothing more is given out."""
        return self.next_ns is not None

    def add(self, run: Run) -> None:
        """Take in points in any order.

        Raises:
            RefusedError: large values whose times overlap are more than memory should hold.
        """
        times, values = run
        if not times:
            return
        self._bytes += _weight(values)
        if self._bytes > PENDING_BYTES_MAX:
            text = "too many large values overlap in time: ask for a shorter time"
            raise RefusedError(Code.TOO_LARGE, text)
        stamps = list(times)
        in_order = stamps == sorted(stamps)  # next to nothing where it is
        self._sorted &= in_order and (not self._times or self._times[-1] <= stamps[0])
        self._times += stamps
        self._values += values

    def take(self, horizon_ns: int | None) -> Run:
        """Return the points that are earlier than all that may still come (None: nothing will).

        May hold back for a while what it could give, so as not to sort again and again.
        """
        if self.done:
            return (), ()
        crowded = len(self._times) >= self._sort_at
        if not self._sorted and horizon_ns is not None and not crowded:
            return (), ()
        self._sort()
        end = len(self._times) if horizon_ns is None else bisect_left(self._times, horizon_ns)
        left = max(0, self._limit - self.points)
        if end > left:
            end = self._cut(left) if left else 0
            self._go_on_at(self._times[end:], horizon_ns)
        taken = self._times[:end], self._values[:end]
        self._times, self._values = self._times[end:], self._values[end:]
        self.points += end
        self._bytes -= _weight(taken[1])
        # Of what is kept back, only as many as may still be given out can matter.
        if len(self._times) > 2 * self._limit:
            self._drop_latest()
        self._sort_at = max(4096, 2 * len(self._times))
        return taken

    def stop(self, horizon_ns: int | None) -> None:
        """Give out nothing more: a next request goes on with the earliest that is left."""
        self._sort()
        self._go_on_at(self._times, horizon_ns)

    def _go_on_at(self, left: list[int], horizon_ns: int | None) -> None:
        """Let a next request go on with the earliest that is left, or may still come."""
        first = [*left[:1], *([] if horizon_ns is None else [horizon_ns])]
        self.next_ns = min(first, default=None)

    def _sort(self) -> None:
        if not self._sorted:
            order = sorted(range(len(self._times)), key=self._times.__getitem__)
            self._times = [self._times[at] for at in order]
            self._values = [self._values[at] for at in order]
            self._sorted = True

    def _cut(self, left: int) -> int:
        """Return where to stop: before ``left`` points, between two stamps.

        Where all there has been so far has one stamp, after that.
        """
        stamp = self._times[left]
        start = bisect_left(self._times, stamp)
        return start if start or self.points else bisect_right(self._times, stamp)

    def _drop_latest(self) -> None:
        # One more than all of the last stamp: where a next request goes on.
        keep = bisect_right(self._times, self._times[self._limit]) + 1
        self._bytes -= _weight(self._values[keep:])
        del self._times[keep:], self._values[keep:]


def _weight(values: Sequence[Value]) -> int:
    """Return the bytes of values that may be large; numbers count nothing."""
    if not values or type(values[0]) is float:
        return 0
    return sum(len(value) for value in values if isinstance(value, str | bytes)) + sum(
        len(value.data) for value in values if isinstance(value, Opaque)
    )


def chunks(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a run as JSON-ready pieces of one kind of value, none much above CHUNK_BYTES."""
    times, values = run
    at = 0
    for kind, group in groupby(values, key=type):
        count = sum(1 for _ in group)
        part = values[at : at + count]
        if kind is float and not _odd(part):
            for start in range(0, count, CHUNK_POINTS):
                piece = slice(start, start + CHUNK_POINTS)
                stamps = list(times[at : at + count][piece])
                yield {"dtype": "float64", "times": stamps, "values": list(part[piece])}
        else:
            yield from _spelled(times[at : at + count], part)
        at += count


def _odd(values: Sequence[Value]) -> bool:
    """Tell whether there is a NaN or an infinity: a sum with one is one."""
    total = sum(values)  # type: ignore[arg-type]
    return total != total or total in (float("inf"), float("-inf"))  # noqa: PLR0124


def _spelled(times: Sequence[int], values: Sequence[Value]) -> Iterator[dict[str, Any]]:
    piece: dict[str, Any] = {}
    size = 0
    for time, value in zip(times, values, strict=True):
        shown, dtype = value_to_json(value)
        room = size < CHUNK_BYTES and len(piece.get("times", ())) < CHUNK_POINTS
        if not piece or piece["dtype"] != dtype or not room:
            if piece:
                yield piece
            piece, size = {"dtype": dtype, "times": [], "values": []}, 0
        piece["times"].append(time)
        piece["values"].append(shown)
        size += 24 + (len(shown) if isinstance(shown, str) else _size(shown))
    if piece:
        yield piece


def _size(shown: Any) -> int:
    return 8 if isinstance(shown, int | float) else len(msgspec.json.encode(shown))


def pick(times: Sequence[int], values: Sequence[Value], question: HistoryQuestion) -> Run:
    """Return the points of a run that lie in the time asked for."""
    keep = [question.from_ns <= time < question.to_ns for time in times]
    found = array("q", [time for time, good in zip(times, keep, strict=True) if good])
    return found, [value for value, good in zip(values, keep, strict=True) if good]
