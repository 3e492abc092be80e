"""Rolling figures of each device's signals: mean, spread, slope, and the battery's last day.

Sums of weighted samples, a sample's weight falling by half every HALF_LIFE_S. They are the same in
whatever order samples come, and need no list of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Floats, Ints

HALF_LIFE_S = 1800.0
_HOUR_NS = 3_600_000_000_000
_HOURS = 24
_BACK = tuple(map(str, range(_HOURS)))
# Weighted samples from which on a spread or slope means something.
_SAMPLES_MIN = 2.5
_SPAN_H_MIN = 0.02
# Sums are single floats. One reading whose square is none would make figures infinite for ever.
VALUE_MAX = 1e15
# Of a base so many times a value's size (at least 1) single floats leave nothing of the value.
BASE_FAR = 1e6
# w, t, tt: weights and times (hours before `time_ns`); v, vv, tv: with the values.
_SUMS = ("w", "t", "tt", "v", "vv", "tv")
SERIES = np.dtype(
    [("time_ns", "i8"), ("base", "f4"), ("last", "f4"), *((name, "f4") for name in _SUMS)]
)
# Of a day, each hour's last state of charge in steps of half a percent from 1; 0 is unknown.
CURVE = np.dtype([("hour", "i4"), ("half_pct", "u1", (_HOURS,))])


def add(rows: NDArray[Any], which: NDArray[np.intp], time_ns: Ints, value: NDArray[Any]) -> None:
    """Add finite samples, sorted by `which` and time, to the rows (dtype SERIES) that they belong to.

    `rows` is (series,); the others are (samples,): `which` intp, `time_ns` int64, ns since 1970, `value`
    float64, in the unit of the series.
    """
    fits = np.abs(value) < VALUE_MAX
    which, time_ns, value = which[fits], time_ns[fits], value[fits]
    if not len(which):
        return
    starts = np.flatnonzero(np.r_[True, which[1:] != which[:-1]])
    ends = np.r_[starts[1:], len(which)] - 1
    row = which[starts]
    state = rows[row]
    new = (state["time_ns"] == 0) | _spoilt(state, value[starts])
    for name in _SUMS:
        state[name][new] = 0
    # Values are summed from near their own size, or small changes of large ones would be lost.
    state["base"] = np.where(new, value[starts], state["base"])
    newest = np.maximum(state["time_ns"], time_ns[ends])
    state["last"] = np.where(time_ns[ends] >= state["time_ns"], value[ends], state["last"])
    _age(state, np.where(new, 0.0, (newest - state["time_ns"]) / _HOUR_NS))
    counts = np.diff(np.r_[starts, len(which)])
    t = (time_ns - np.repeat(newest, counts)) / _HOUR_NS
    w = 0.5 ** (-t * 3600 / HALF_LIFE_S)
    v = value - np.repeat(state["base"].astype(float), counts)
    sums = {"w": w, "t": w * t, "tt": w * t * t, "v": w * v, "vv": w * v * v, "tv": w * t * v}
    for name, terms in sums.items():
        state[name] += np.add.reduceat(terms, starts)
    state["time_ns"] = newest
    rows[row] = state


def _spoilt(state: NDArray[Any], value: NDArray[Any]) -> Flags:
    """Say which rows tell nothing: no numbers, or summed from so far away that `value` is lost."""
    finite = np.isfinite([state[name] for name in ("base", *_SUMS)]).all(axis=0)
    far = np.abs(state["base"]) > BASE_FAR * np.maximum(np.abs(value), 1)
    found: Flags = ~finite | far
    return found


def _age(state: NDArray[Any], hours: Floats) -> None:
    """Shift the point from which times count by `hours`, and let the weights fall."""
    decay = 0.5 ** (hours * 3600 / HALF_LIFE_S)
    w, t, v = (state[name].astype(float) for name in ("w", "t", "v"))
    state["tt"] = (state["tt"] - 2 * hours * t + hours**2 * w) * decay
    state["tv"] = (state["tv"] - hours * v) * decay
    state["t"] = (t - hours * w) * decay
    for name in ("w", "v", "vv"):
        state[name] *= decay


def figures(rows: NDArray[Any]) -> dict[str, Floats]:
    """Return mean, deviation and slope (a unit an hour) of each row; NaN where not known.

    `rows`: (n,), dtype SERIES; each figure is (n,) float64.
    """
    sums = {name: rows[name].astype(float) for name in _SUMS}
    w = np.where(sums["w"] > 0, sums["w"], np.nan)
    mean, at = sums["v"] / w, sums["t"] / w
    spread = sums["tt"] / w - at**2
    covariance = sums["tv"] / w - mean * at
    known = (w >= _SAMPLES_MIN) & (spread > _SPAN_H_MIN**2)
    slope = np.where(known, covariance / np.where(known, spread, 1), np.nan)
    deviation = np.sqrt(np.maximum(sums["vv"] / w - mean**2, 0))
    return {"mean": rows["base"] + mean, "deviation": deviation, "slope": slope}


def add_curve(
    curves: NDArray[Any], which: NDArray[np.intp], time_ns: Ints, pct: NDArray[Any]
) -> None:
    """Note the last state of charge, percent, of each hour. Samples sorted by `which` and time.

    `curves`: (devices,), dtype CURVE. The others are (samples,): `which` intp, `time_ns` int64, ns since
    1970, `pct` float64.
    """
    if not len(which):
        return
    hour = (time_ns // _HOUR_NS).astype(np.int64)
    ends = np.flatnonzero(np.r_[which[1:] != which[:-1], True])
    row = which[ends]
    before = curves["hour"][row].astype(np.int64)
    newest = np.maximum(before, hour[ends])
    # Of the hours gone by since, the places hold what was a day ago.
    places = np.arange(_HOURS)
    passed = (places[None, :] - before[:, None] - 1) % _HOURS < (newest - before)[:, None]
    half = curves["half_pct"][row]
    half[passed] = 0
    curves["half_pct"][row], curves["hour"][row] = half, newest
    recent = hour > curves["hour"][which] - _HOURS
    step = (np.clip(pct, 0, 100) * 2 + 1).round().astype(np.uint8)
    curves["half_pct"][which[recent], hour[recent] % _HOURS] = step[recent]


def curves_of(curves: NDArray[Any]) -> list[dict[str, float]]:
    """Return each row's state of charge by hours before its newest, as text: "0" is the newest.

    `curves`: (n,), dtype CURVE.
    """
    back = (curves["hour"].astype(np.int64)[:, None] - np.arange(_HOURS)) % _HOURS
    steps = np.take_along_axis(curves["half_pct"], back, axis=1)
    return [
        {hour: (step - 1) / 2 for hour, step in zip(_BACK, row, strict=True) if step}
        for row in steps.tolist()
    ]
