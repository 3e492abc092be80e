"""Statistics that a few wild values cannot move, over many groups at once. Pure numpy."""

from __future__ import annotations

import numpy as np

from backhaul_spark.arrays import Floats, Ints

MAD_TO_SIGMA = 1.4826
"""The MAD of normal noise times this is its standard deviation."""
TAIL_FROM, TAIL_TO = 0.1, 0.02
"""Between these shares of the greatest scores the tail's weight is measured."""
WILD_FROM, WILD_TO = 0.2, 0.05
"""Likewise farther in, where the tail looks heavier than it is: for what no noise can be."""
ANOMALIES = 8
"""So many of a small fleet's greatest scores may be anomalies, and of a large one's WILD_TO."""
TAIL_INDEX_MIN = 2.0
"""The heaviest tail believed in: that of noise whose variance is barely finite."""
TAIL_INDEX_MAX = 8.0
Z_MIN = 4.0


def group_median(values: Floats, group: Ints, groups: int) -> tuple[Floats, Ints]:
    """Return the median of each group and how many values it has; NaN values are in no group.

    `values` is (n,) float64, `group` (n,) int64, from 0 to `groups` - 1; medians and numbers are (groups,). The median
    of an empty group is NaN.
    """
    ordered, start, sizes = _by_group(values, group, groups)
    median = np.full(groups, np.nan)
    filled = sizes > 0
    begin, size = start[filled], sizes[filled]
    low, high = ordered[begin + (size - 1) // 2], ordered[begin + size // 2]
    median[filled] = low + (high - low) / 2
    return median, sizes


def group_upper(values: Floats, group: Ints, groups: int, share: float, some: int) -> Floats:
    """Return for each group a value that no more than `share` of it exceed, or `some` of a small group.

    `values`: (n,) float64. `group`: (n,) int64. The result is (groups,) float64.
    """
    ordered, start, sizes = _by_group(values, group, groups)
    found = np.full(groups, np.nan)
    filled = sizes > 0
    size = sizes[filled]
    above = np.minimum(np.maximum((share * size).astype(np.int64), some), size - 1)
    found[filled] = ordered[start[filled] + size - 1 - above]
    return found


def _by_group(values: Floats, group: Ints, groups: int) -> tuple[Floats, Ints, Ints]:
    """Return the values sorted by group and size, where each group starts, and its size."""
    there = ~np.isnan(values)
    values, group = values[there], group[there]
    sizes = np.bincount(group, minlength=groups).astype(np.int64)
    return values[np.lexsort((values, group))], np.cumsum(sizes) - sizes, sizes


def group_scale(values: Floats, group: Ints, groups: int, centre: Floats) -> Floats:
    """Return 1.4826 times the MAD of each group around its `centre` (shape (groups,)).

    `values`: (n,) float64. `group`: (n,) int64. The result is (groups,) float64, in the unit of the values.

    0 where more than half of a group are alike, NaN where it is empty.
    """
    away, _ = group_median(np.abs(values - centre[group]), group, groups)
    return away * MAD_TO_SIGMA


def tail_limit(scores: Floats, probability: float) -> float:
    """Return the |score| that noise exceeds with at most `probability`, judged by its own tail.

    `scores` is (devices,) float64, of all devices and without a unit; `probability` is that of one score.

    Between the greatest tenth and the greatest fiftieth the tail is taken for a power law and drawn
    on from there: heavier than normal noise, and as heavy as heavy-tailed noise shows itself to be.
    Few scores know little of their tail, so the index is lowered by its standard error. Before that
    go those that are out by any measure: a fiftieth may be anomalies, and would raise their own limit.

    Returns:
        The limit, at least Z_MIN; infinity if the scores have no scale.
    """
    size = np.abs(scores[np.isfinite(scores)])
    wild = _drawn_on(size, probability, WILD_FROM, WILD_TO)
    return max(_drawn_on(size[size <= wild], probability, TAIL_FROM, TAIL_TO), Z_MIN)


def _drawn_on(size: Floats, probability: float, share_from: float, share_to: float) -> float:
    """Draw the tail on that lies between two shares of the greatest, to where noise ends."""
    if not len(size):
        return float("inf")
    beyond = min(max(share_to, ANOMALIES / len(size)), share_from)
    low, high = np.quantile(size, (1 - share_from, 1 - beyond))
    if low <= 0:
        return float("inf")
    between = max((share_from - beyond) * len(size), 1.0)
    index = np.log(share_from / beyond) / np.log(high / low) if high > low else TAIL_INDEX_MAX
    index = max(min(index, TAIL_INDEX_MAX) * (1 - 1 / np.sqrt(between)), TAIL_INDEX_MIN)
    return float(high * (beyond / probability) ** (1 / index))
