"""Say where a device's day is unlike its own days before, by their means and by how far they reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backhaul_spark.arrays import Floats, Ints

DAYS_MIN = 3
"""A past of fewer days says nothing."""
LIMIT = 6.0
"""Deviations of the days' means from which on a day is unlike them."""
SPREAD_SHARE = 0.1
"""A deviation is at least this share of what a device moves on a day: three days may be alike by chance."""
HOURS_MIN = 12
"""The mean of fewer hours is not that of a day: of these only the hour that lies farthest is looked at."""
REACH = 1.25
"""An hour lies farther from the usual mean than this times what a device moves on a day: no day reaches so far."""
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Unlike:
    """How a day differs from the days before: an entry a device, NaN where nobody can say.

    Attributes:
        score: 1 is just at the limit.
        value, usual: the mean of the day, or of the hour that lies farthest, and the days' middle mean.
        days: of how many days there are readings.
    """

    score: Floats
    value: Floats
    usual: Floats
    days: Ints


def unlike_past(levels: Floats, past_levels: Floats | None, past_spreads: Floats | None) -> Unlike:
    """Compare the hours of a day with the days before.

    All are float64, in the unit of the signal. `levels` are means of hours, (devices, hours), NaN for none;
    `past_levels` those of the days before, (devices, days), None where nothing is known of them; `past_spreads` the
    greatest minus the smallest reading of each of these days.
    """
    count = len(levels)
    nothing = np.full(count, np.nan)
    if past_levels is None or past_spreads is None:
        return Unlike(nothing, nothing, nothing, np.zeros(count, np.int64))
    days = np.sum(~np.isnan(past_levels), axis=1)
    known = (days >= DAYS_MIN) & (~np.isnan(levels)).any(axis=1)
    score, value, usual = nothing.copy(), nothing.copy(), nothing.copy()
    for row in np.flatnonzero(known).tolist():
        middle = np.nanmedian(past_levels[row])
        moves = float(np.nanmedian(past_spreads[row]))
        away = float(np.nanmedian(np.abs(past_levels[row] - middle))) * _MAD_TO_SIGMA
        scale = max(away * (1 + DAYS_MIN / days[row]), SPREAD_SHARE * moves)
        if not scale > 0:
            continue
        mean = float(np.nanmean(levels[row]))
        far = levels[row, int(np.nanargmax(np.abs(levels[row] - middle)))]
        whole = np.sum(~np.isnan(levels[row])) >= HOURS_MIN
        by_mean = abs(mean - middle) / scale / LIMIT if whole else 0.0
        by_reach = abs(far - middle) / (REACH * moves + LIMIT * away) if moves + away > 0 else 0.0
        usual[row] = middle
        score[row], value[row] = max((by_mean, mean), (by_reach, float(far)))
    return Unlike(score, value, usual, days)
