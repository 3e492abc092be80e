"""Find the newest value of each series in a frame, without building all of its points.

For who wants heads from telemetry: the vehicle when its link comes up, the hub's twin. Standard
library alone; what is done for every point is done by it, in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import ge, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.points import INT64_MAX, Point
from backhaul_codec.state.merge import Head, HeadKey, join
from backhaul_codec.wire.frame_points import (
    SeriesPlace,
    build_times,
    column_entries,
    series_places,
    values_at,
)
from backhaul_codec.wire.messages import frame_layout
from backhaul_codec.wire.point_body import encode_value

if TYPE_CHECKING:
    from backhaul_codec.wire.frame_layout import Layout

# Up to so many series, a search of bytes for each beats a look at each point.
_FEW_SERIES = 64


class _Last(NamedTuple):
    """Hold where the last point of a series is in its frame, and its time in ns."""

    at: int
    time: int


def newest_of(message: bytes, *, node: str | None = None) -> list[Point]:
    """Return one point for each (node, type, key) of a frame or bundle: the result of merging its points.

    That is the greatest (time, origin, encoded value) and the greatest tombstone. `node` is the
    one of a frame's subject, if that is to be proven. The points come in the order of the frame's series.

    Raises: CodecError, as `decode` does; `kind` for a message that is no frame.
    """
    return newest_in(frame_layout(message, node))


def newest_in(layout: Layout) -> list[Point]:
    """Return the same for a frame that was read as far as its layout."""
    lasts = None if layout.tomb is not None else _lasts(layout)
    points = _winners(layout) if lasts is None else _points_at(layout, lasts)
    names = (layout.types, layout.keys or layout.types, layout.nodes or layout.types)
    if len(set(zip(*names, strict=True))) == len(points):
        return points
    return _merged(points)


def newest_time(layout: Layout) -> int:
    """Return the greatest time of all points of a frame, in ns."""
    steps = layout.dt.to_array()
    last = layout.t0 + layout.unit * sum(steps)
    if last > INT64_MAX or (steps and min(steps) < 0):
        return max(build_times(layout))
    return last


def _merged(points: Iterable[Point]) -> list[Point]:
    heads: dict[HeadKey, Head] = {}
    for point in points:
        key, head = HeadKey.of("", point), Head.of(point)
        known = heads.get(key)
        heads[key] = head if known is None else join(known, head)
    return [head.to_point(key) for key, head in heads.items()]


def _lasts(layout: Layout) -> list[_Last] | None:
    """Find the last point of each series; None unless each is the one newest of its series."""
    units = _units(layout)
    if units is None or layout.sid.code != "B" or len(layout.types) > _FEW_SERIES:
        return _lasts_in_any_order(layout)
    sids, lasts = layout.sid.data, []
    for sid in range(len(layout.types)):
        last = sids.rfind(sid)
        before = sids.rfind(sid, 0, last)
        if before >= 0 and units[before] == units[last]:
            return None
        lasts.append(_Last(last, layout.t0 + layout.unit * units[last]))
    return lasts


def _units(layout: Layout) -> list[int] | None:
    """Return the points' times in units from t0; None if they go back somewhere."""
    steps = layout.dt.to_array()
    if steps and min(steps) < 0:
        return None
    units = list(accumulate(steps, initial=0))
    return units if layout.t0 + layout.unit * units[-1] <= INT64_MAX else None


def _lasts_in_any_order(layout: Layout) -> list[_Last] | None:
    times, sids = build_times(layout), layout.sid.to_array()
    index_of = dict(zip(sids, range(layout.n), strict=True))
    lasts = [_Last(index_of[sid], times[index_of[sid]]) for sid in range(len(layout.types))]
    newest = [last.time for last in lasts]
    as_new = sum(map(ge, times, map(newest.__getitem__, sids)))
    return lasts if as_new == len(lasts) else None


def _points_at(layout: Layout, lasts: list[_Last]) -> list[Point]:
    """Return the last point of each series; of no other is the value worked out."""
    places = series_places(layout)
    columns = {column: column_entries(layout, column) for column in {p.column for p in places}}
    keys = layout.keys or [""] * len(places)
    origins = [""] * len(places)
    if layout.origin_of is not None:
        origin_of = layout.origin_of.to_array()
        origins = [layout.origins[origin_of[last.at]] for last in lasts]
    points = []
    for place, node, type_, key, last, origin in zip(
        places, layout.series_nodes(), layout.types, keys, lasts, origins, strict=True
    ):
        column = columns[place.column]
        [value] = values_at(layout, _last_alone(place, column), column)
        points.append(Point(node, type_, last.time, value, key, 0, origin))
    return points


def _winners(layout: Layout) -> list[Point]:
    """Return one point for each series, and build no other: a frame may have a quarter of a million."""
    times, sids = build_times(layout), layout.sid.to_array()
    by_series = sorted(range(layout.n), key=sids.__getitem__)
    places = series_places(layout)
    columns = {column: column_entries(layout, column) for column in {p.column for p in places}}
    keys = layout.keys or [""] * len(places)
    origin_of = None if layout.origin_of is None else layout.origin_of.to_array()
    points, end = [], 0
    for place, node, type_, key, count in zip(
        places, layout.series_nodes(), layout.types, keys, layout.counts, strict=True
    ):
        rows = by_series[end : end + count]
        end += count
        values = values_at(layout, place, columns[place.column])
        time = max(map(times.__getitem__, rows))
        rivals = (
            (layout.origins[origin_of[row]] if origin_of else "", encode_value(value), value)
            for row, value in zip(rows, values, strict=True)
            if times[row] == time
        )
        origin, _, value = max(rivals, key=itemgetter(0, 1))
        tombstone = max(map(layout.tomb.__getitem__, rows)) if layout.tomb else 0
        points.append(Point(node, type_, time, value, key, tombstone, origin))
    return points


def _last_alone(place: SeriesPlace, column: Sequence[int]) -> SeriesPlace:
    """Return a series of one point: the last of this one."""
    if place.column >= 4:
        return place._replace(start=place.end - 1)
    base = place.base + sum(column[place.start : place.end])
    return place._replace(base=base, start=place.end)
