"""Find devices whose clock is wrong, by the hub's storage times of their readings.

Of the points that the hub stored in an hour the newest was read a moment ago, if the clock is right
and the link is up. A backlog makes readings old too, but not all equally: a clock that is behind
keeps its distance hour after hour. A reading that was stored before it was taken has no excuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import acero

from backhaul_codec.kinds import FRAME, POINT
from backhaul_spark.columns import columns
from backhaul_spark.fleet.readings import HOUR_US, Windows

AHEAD_S_MIN = 60.0
BEHIND_S_MIN = 300.0
BEHIND_HOURS_MIN = 3
STEADY_S = 60.0
"""The distance of a clock that is behind changes by no more than this from hour to hour."""
LATE_S_MIN = 3600.0
"""A device of which no reading came sooner says nothing about its clock, unless it is behind."""
UNSET_SHARE_MIN = 0.1
UNSET = 2


@dataclass(frozen=True, slots=True)
class WrongClock:
    """An error of a device's clock.

    Attributes:
        offset_s: how far it is ahead; negative: behind; 0 where it only was unset.
        unset: readings stamped without a clock, of `points` in all.
        others: how many others' daily rhythm shows it; 0: the time of storing does.
    """

    device: str
    offset_s: float
    unset: int
    points: int
    others: int = 0


LAGS = columns(
    """
    device string, hour bigint, lag_us double, points bigint, unset bigint
    """
)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The devices whose readings of a day the hub stored after it, and from when to when (us since 1970)."""

    devices: list[str]
    start_us: int
    end_us: int


def handed_over_later(points: Any, windows: Windows) -> HandedOver | None:
    """Return which devices handed readings of these windows over after them, by the points as a dataset; None for none."""
    stored = pc.field("stored_at")
    end = pa.scalar(windows.end_us).cast(pa.timestamp("us", tz="UTC"))
    where = (pc.field("date") == windows.first) & (stored >= end) & _of_vehicles()
    columns = {"device": pc.field("device"), "us": stored.cast(pa.int64())}
    figures = {"first": ("us", "hash_min"), "last": ("us", "hash_max")}
    found = _summed(points, where, columns, figures, ["device"])
    if not found.num_rows:
        return None
    first_us, last_us = pc.min(found.column("first")).as_py(), pc.max(found.column("last")).as_py()
    names = sorted(found.column("device").to_pylist())
    return HandedOver(names, first_us, last_us // HOUR_US * HOUR_US + HOUR_US)


def _of_vehicles() -> Any:
    return pc.field("letter").isin([FRAME.letter, POINT.letter])


def _summed(
    points: Any,
    where: pc.Expression,
    columns: Mapping[str, pc.Expression],
    figures: Mapping[str, tuple[str, str]],
    keys: list[str],
) -> pa.Table:
    """Return figures (column, function) of rows of points by keys; the rows stream through."""
    read = ["device", "stored_at", "time_ns", "clock", "letter", "date"]
    sums = [(column, function, None, name) for name, (column, function) in figures.items()]
    plan = {
        "scan": acero.ScanNodeOptions(points, columns=read, filter=where),
        "filter": acero.FilterNodeOptions(where),
        "project": acero.ProjectNodeOptions([*columns.values()], [*columns]),
        "aggregate": acero.AggregateNodeOptions(sums, keys=keys),
    }
    steps = [acero.Declaration(name, options) for name, options in plan.items()]
    return acero.Declaration.from_sequence(steps).to_table()


def stored_lags(points: Any, span: Windows | HandedOver) -> pa.Table:
    """Return of each device and hour of storing the smallest age of a point (schema LAGS).

    Streams through the points of the time, whatever day they speak of: a clock that is a week
    behind writes into another day's partition. `span` is the time in which they were stored, of all devices or of some.
    """
    stored = pc.field("stored_at")
    low, high = (
        pa.scalar(us).cast(pa.timestamp("us", tz="UTC")) for us in (span.start_us, span.end_us)
    )
    where = (stored >= low) & (stored < high) & _of_vehicles()
    if isinstance(span, HandedOver):
        where &= pc.field("device").isin(pa.array(span.devices, pa.string()))
    stored_us = stored.cast(pa.int64())
    # In doubles: an unset clock may say anything that 64 bits hold.
    lag_us = stored_us.cast(pa.float64(), safe=False) - pc.field("time_ns").cast(
        pa.float64(), safe=False
    ) / pc.scalar(1000.0)
    unset = pc.field("clock").cast(pa.int64()) == UNSET
    columns = {
        "device": pc.field("device"),
        "hour": pc.divide(stored_us, pc.scalar(HOUR_US)),
        "lag_us": lag_us,
        "unset": unset.cast(pa.int64()),
    }
    figures = {
        "lag_us": ("lag_us", "hash_min"),
        "points": ("lag_us", "hash_count"),
        "unset": ("unset", "hash_sum"),
    }
    found = _summed(points, where, columns, figures, ["device", "hour"])
    return found.select(LAGS.names).cast(LAGS)


def wrong_clocks(lags: pa.Table) -> list[WrongClock]:
    """Return the devices whose clock is wrong, by id.

    A lag that the whole fleet has in an hour (a hub that was away) is nobody's clock.
    """
    if not lags.num_rows:
        return []
    names = lags.column("device").combine_chunks().dictionary_encode()
    device = names.indices.to_numpy()
    number = len(names.dictionary)
    hour = lags.column("hour").to_numpy()
    lag_s = lags.column("lag_us").to_numpy() / 1e6
    behind_s = lag_s - _usual(hour, lag_s)
    least = _reduced(np.minimum, device, lag_s, number, np.inf)
    nearest = _reduced(np.minimum, device, behind_s, number, np.inf)
    farthest = _reduced(np.maximum, device, behind_s, number, -np.inf)
    hours = np.bincount(device, minlength=number)
    points = np.bincount(device, lags.column("points").to_numpy(), number)
    unset = np.bincount(device, lags.column("unset").to_numpy(), number)
    ahead = least < -AHEAD_S_MIN
    steady = (hours >= BEHIND_HOURS_MIN) & (farthest - nearest <= STEADY_S)
    behind = ~ahead & steady & (nearest > BEHIND_S_MIN)
    without = unset >= UNSET_SHARE_MIN * points
    offset = np.where(ahead, -least, np.where(behind, -nearest, 0.0))
    found = [
        WrongClock(names.dictionary[i].as_py(), float(offset[i]), int(unset[i]), int(points[i]))
        for i in np.flatnonzero(ahead | behind | without).tolist()
    ]
    return sorted(found, key=lambda each: each.device)


def ahead_in_a_backlog(lags: pa.Table) -> list[WrongClock]:
    """Return the devices whose clock was ahead while they handed a backlog over.

    The newest readings of a backlog are of the moment at which it comes. A clock that is ahead stamps them in
    the hub's future; what is older of it is as far ahead, and only looks late.
    """
    return [each for each in wrong_clocks(lags) if each.offset_s > 0]


def late_alone(lags: pa.Table, late: HandedOver, late_lags: pa.Table) -> list[str]:
    """Return the devices that handed readings over later, of which none in these tables came at once.

    Args:
        lags: of the day itself, schema LAGS.
        late: the devices.
        late_lags: of the time in which they handed over, schema LAGS.
    """
    both = pa.concat_tables([lags, late_lags])
    prompt = pc.unique(both.filter(pc.field("lag_us") < LATE_S_MIN * 1e6).column("device"))
    return sorted(set(late.devices) - set(prompt.to_pylist()))


def _usual(hour: Any, lag_s: Any) -> Any:
    """Return the lag of the fleet's middle device in each row's hour, no less than 0."""
    hours, at = np.unique(hour, return_inverse=True)
    medians = np.array([np.median(lag_s[at == i]) for i in range(len(hours))])
    return np.maximum(medians, 0)[at]


def _reduced(ufunc: Any, group: Any, values: Any, groups: int, start: float) -> Any:
    result = np.full(groups, start)
    ufunc.at(result, group, values)
    return result
