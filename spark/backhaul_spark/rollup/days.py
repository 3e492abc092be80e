"""Sum hours up to days. From hours and not from points: a day of points need not be read again.

Hours are added in the order of time, so that a day has the same bits however often and in whichever
portions its hours came. The sum of a day may differ in its last bits from that of all its points.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.rollup.rows import SERIES
from backhaul_spark.rollup.windows import SCALE, WINDOWS

# How a day's column comes of its hours'; those without a value do not count.
_FIGURES = {
    **dict.fromkeys(("count", "nans", "texts", "sum", "scaled"), "sum"),
    **{name: name for name in ("min", "max", "first", "last")},
    **{f"{end}_{of}": end for end in ("first", "last") for of in ("text", "time_ns")},
}


def sum_days(hours: pa.Table) -> pa.Table:
    """Return the windows of width 1d that whole days of hour windows give (schema WINDOWS)."""
    order = [*SERIES, "window_start"]
    hours = hours.select(WINDOWS.names).sort_by([(name, "ascending") for name in order])
    count = hours.column("count").cast(pa.float64())
    # Of numbers whose sum no double holds the mean comes of smaller ones.
    scaled = pc.multiply(pc.multiply(hours.column("mean"), SCALE), count)
    day = pc.floor_temporal(hours.column("window_start"), unit="day")
    hours = hours.append_column("scaled", scaled).append_column("day", day)
    # By one thread: else rows would not be added in their order.
    groups = pa.TableGroupBy(hours, [*SERIES, "day"], use_threads=False)
    found = groups.aggregate([*_FIGURES.items()])
    days = {name: found.column(f"{name}_{how}") for name, how in _FIGURES.items()}
    days |= {name: found.column(name) for name in SERIES}
    count = days["count"].cast(pa.float64())
    finite = pc.and_(pc.is_finite(days["min"]), pc.is_finite(days["max"]))
    over = pc.and_(finite, pc.invert(pc.is_finite(days["sum"])))
    scaled = pc.divide(pc.divide(days["scaled"], count), SCALE)
    days["mean"] = pc.if_else(over, scaled, pc.divide(days["sum"], count))
    days["width"] = pa.repeat(pa.scalar("1d"), found.num_rows)
    days["window_start"] = found.column("day")
    return pa.table([days[name] for name in WINDOWS.names], schema=WINDOWS)
