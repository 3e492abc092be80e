"""Find the newest value of every series of many frames at once, from their columns.

The newest values of many layouts by numpy, as `newest_in` finds them of one. To `newest_in` are left frames whose times go
back or pass the end of time, in which two points of a series share the newest time, or two series a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from backhaul_codec.bulk.frame_columns import Strings, starts
from backhaul_codec.points import FLOAT64, INT64, INT64_MAX, UINT64, SeriesName
from backhaul_codec.wire.frame_fields import FLOAT_WIDTHS, INTEGER_WIDTHS, POWERS

if TYPE_CHECKING:
    from backhaul_codec.bulk.frame_columns import Array, Columns

_POWERS = np.array(POWERS)
# Sums of times are compared as doubles: those so near the end are left to exact numbers.
_SURE_MAX = float(INT64_MAX) * (1 - 1e-9)


class NewestRows(NamedTuple):
    """Hold one row for each series of each frame, those of the first frame first.

    Of each frame: `clear`, whether its rows say its newest values; `newest_ns`, its greatest time (ns);
    `first`, its first row; `points` and `text_bytes`, all names with a copy for each point. Of each row:
    `name`, an index into `names`, which are distinct; the `time` (ns) and the `value`.
    """

    clear: list[bool]
    newest_ns: list[int]
    first: list[int]
    points: list[int]
    text_bytes: list[int]
    names: list[SeriesName]
    name: list[int]
    time: list[int]
    value: list[int | float]


def newest_rows(columns: Columns) -> NewestRows:
    """Return the rows of proven frames without blobs, tombstones and origins: as `read_small_frames` gives them."""
    frame_of = np.repeat(np.arange(len(columns.series)), columns.series)
    times, unclear = _times(columns)
    series_of = columns.sid.astype(np.int64)
    series_of += np.repeat(starts(columns.series), columns.points)
    last = np.zeros(len(frame_of), np.int64)
    last[series_of] = np.arange(len(series_of))  # of one series the last assignment stands
    newest = times[last]
    as_new = np.bincount(series_of[times == newest[series_of]], minlength=len(last))
    unclear[frame_of[as_new > 1]] = True
    names, name = _names(columns)
    twice, count = np.unique(frame_of * len(names) + name, return_counts=True)
    unclear[twice[count > 1] // len(names)] = True
    return NewestRows(
        clear=(~unclear).tolist(),
        newest_ns=times[np.cumsum(columns.points) - 1].tolist(),
        first=starts(columns.series).tolist(),
        points=columns.points.tolist(),
        text_bytes=_text_bytes(columns, frame_of).tolist(),
        names=names,
        name=name.tolist(),
        time=newest.tolist(),
        value=_values(columns),
    )


def _times(columns: Columns) -> tuple[Array, Array]:
    """Return the time of each point, and of which frames times go back or too far: theirs are nonsense."""
    frames = np.repeat(np.arange(len(columns.points)), columns.points)
    first = starts(columns.points)
    steps = np.zeros(len(frames), np.int64)
    later = np.ones(len(frames), np.bool_)
    later[first] = False
    steps[later] = columns.dt
    unclear = np.zeros(len(columns.points), np.bool_)
    unclear[frames[steps < 0]] = True
    spans = np.bincount(frames, weights=steps, minlength=len(first)) * columns.unit
    unclear |= ~(columns.t0 + spans < _SURE_MAX)
    units = np.cumsum(steps)
    units -= np.repeat(units[first], columns.points)
    times = np.repeat(columns.t0.astype(np.int64), columns.points)
    times += np.repeat(columns.unit.astype(np.uint64).view(np.int64), columns.points) * units
    return times, unclear


def _values(columns: Columns) -> list[int | float]:
    """Return the last value of each series."""
    dtype, column, exponent = columns.kinds.T
    numbers = np.zeros(len(dtype), np.uint64)
    numbers[column < len(INTEGER_WIDTHS)] = columns.bases
    doubles = np.zeros(len(dtype))
    for each, entries in columns.entries.items():
        mine = np.flatnonzero(column == each)
        if each in FLOAT_WIDTHS:
            with np.errstate(invalid="ignore"):  # a signalling float32 NaN turns quiet
                doubles[mine] = entries[np.cumsum(columns.counts[mine]) - 1]
            continue
        sizes = columns.counts[mine] - 1
        sums = np.concatenate([np.zeros(1, np.uint64), _running(entries)])
        ends = np.cumsum(sizes)
        numbers[mine] += sums[ends] - sums[ends - sizes]
    scaled = (dtype == FLOAT64) & (column < len(INTEGER_WIDTHS))
    doubles[scaled] = numbers[scaled].view(np.int64) / _POWERS[exponent[scaled]]
    values: list[int | float] = doubles.tolist()
    for kind, numpys in ((INT64, np.int64), (UINT64, np.uint64)):
        for at in np.flatnonzero(dtype == kind).tolist():
            values[at] = int(numbers[at : at + 1].view(numpys)[0])
    return values


def _running(entries: Array) -> Array:
    sums: Array = np.cumsum(entries.astype(np.int64).view(np.uint64))
    return sums


def _names(columns: Columns) -> tuple[list[SeriesName], Array]:
    """Return the distinct names of series, and which of them each series has."""
    key = columns.key or Strings([""], np.zeros(len(columns.kinds), np.int64))
    parts = (columns.node, columns.type, key)
    code = np.zeros(len(columns.kinds), np.int64)
    for part in parts:
        code = code * len(part.texts) + part.number_of
    _, place, number = np.unique(code, return_index=True, return_inverse=True)
    known: dict[SeriesName, int] = {}
    found = [
        known.setdefault(
            SeriesName(*(part.texts[part.number_of[at]] for part in parts)), len(known)
        )
        for at in place.tolist()
    ]
    return list(known), np.array(found, np.int64)[number]


def _text_bytes(columns: Columns, frame_of: Array) -> Array:
    """Return the size of the names of each frame, a copy for each point."""
    each = np.zeros(len(frame_of), np.int64)
    for strings in (columns.node, columns.type, columns.key):
        if strings is not None:
            sizes = np.array([len(text.encode()) for text in strings.texts], np.int64)
            each += sizes[strings.number_of]
    sums = np.zeros(len(columns.series), np.int64)
    np.add.at(sums, frame_of, each * columns.counts)
    return sums
