"""The newest value of each series, as far as a page asks: a pure core.

The agent keeps nothing here while no page is open. It puts by what programs publish, as it came, and looks into it when the page asks
again, so a flood costs no more than its newest part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from backhaul_agent.commit.contents import ConfigWrite, Content, Frame, Points
from backhaul_codec import CodecError, Opaque, Point, decode
from backhaul_codec.state.json_values import value_to_json

SERIES_MAX = 5000
ARRIVALS_MAX = 4096
ARRIVED_BYTES_MAX = 4 << 20
VALUE_CHARS_MAX = 2000
Series = tuple[str, str, str]


class _Shown:
    """A series' newest value. ``version``: when it changed, counted in changes of all series."""

    __slots__ = ("point", "version")

    def __init__(self, point: Point, version: int) -> None:
        self.point = point
        self.version = version


class LiveValues:
    """Collects while ``watched``.

    Args:
        units: of series, by ``node.type``, ``node.type.key`` or the type alone.
    """

    def __init__(self, units: Mapping[str, str]) -> None:
        self.watched = False
        self._units = units
        self._newest: dict[Series, _Shown] = {}
        self._arrived: deque[tuple[Content, int]] = deque()
        self._arrived_bytes = 0
        self._version = 0

    def note(self, content: Content, size: int) -> None:
        """Put a program's message of so many bytes by, once it is kept."""
        if not self.watched:
            return
        self._arrived.append((content, size))
        self._arrived_bytes += size
        while len(self._arrived) > ARRIVALS_MAX or self._arrived_bytes > ARRIVED_BYTES_MAX:
            self._arrived_bytes -= self._arrived.popleft()[1]

    def forget(self) -> None:
        """Let go of everything: nobody looks any more."""
        self.watched = False
        self._newest.clear()
        self._arrived.clear()
        self._arrived_bytes = 0

    def look_into(self) -> None:
        """Take in all messages that were put by."""
        while self._arrived:
            self.take(_points_of(self._arrived.popleft()[0]))
        self._arrived_bytes = 0

    def take(self, points: Iterable[Point]) -> None:
        """Take in points, in any order; of each series the newest stays."""
        for point in points:
            series = (point.node, point.type, point.key)
            known = self._newest.get(series)
            if known is None and len(self._newest) >= SERIES_MAX:
                continue
            if known is not None and known.point.time > point.time:
                continue
            self._version += 1
            self._newest[series] = _Shown(_short(point), self._version)

    def since(self, version: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the version now, and the values that changed after an earlier one."""
        changed = (each.point for each in self._newest.values() if each.version > version)
        return self._version, [self._as_json(point) for point in changed]

    def _as_json(self, point: Point) -> dict[str, Any]:
        value, dtype = value_to_json(point.value)
        names = {"node": point.node, "type": point.type, "key": point.key}
        told = {**names, "time": point.time, "origin": point.origin, "dtype": dtype}
        if point.tombstone & 1:
            return told | {"value": None, "tombstone": True}
        if unit := self._unit(point):
            told["unit"] = unit
        return told | {"value": value, "tombstone": False}

    def _unit(self, point: Point) -> str:
        node_type = f"{point.node}.{point.type}"
        for name in (f"{node_type}.{point.key}", node_type, point.type):
            if name in self._units:
                return self._units[name]
        return ""


def _points_of(content: Content) -> Iterator[Point]:
    if isinstance(content, Points):
        yield from content.points
    elif isinstance(content, Frame):
        for body in (content.body, *(piece.body for piece in content.rest)):
            with suppress(CodecError):  # it was checked when it came; so this is never
                yield from decode(body, node=content.node).points
    elif isinstance(content, ConfigWrite):
        yield from (addressed.point for addressed in content.addressed if not addressed.parent)


def _short(point: Point) -> Point:
    """Return a point that can be kept and shown: of a long value the beginning, as text."""
    value = point.value
    if isinstance(value, str):
        text = value
    elif isinstance(value, Opaque | bytes):
        data = value.data if isinstance(value, Opaque) else value
        text = data[: VALUE_CHARS_MAX + 1].decode(errors="replace")
    else:
        return point
    if len(text) <= VALUE_CHARS_MAX:
        return point
    return replace(point, value=f"{text[:VALUE_CHARS_MAX]}…")
