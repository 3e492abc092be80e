"""A battery that empties while the vehicle does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.decode.series import SeriesKey
from backhaul_spark.rules import rule
from backhaul_spark.rules.rule import SECOND_NS, AlertDraft, Finding, Rows, Samples

_HOUR_NS = 3600 * SECOND_NS
_Positive = Annotated[float, Meta(gt=0)]


class BatterySettings(rule.Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`window_s`: the fall is measured over this to one and a half of it.

    `load_s_max`: a vehicle whose load was last heard of longer ago is not taken for idle.
    """

    fall_pct_h: _Positive = 10.0
    idle_load: _Positive = 0.3
    window_s: _Positive = 600.0
    load_s_max: _Positive = 900.0


class Battery(rule.Rule):
    """State of charge, percent, falling faster than 10 an hour while the load is under 0.3.

    The two signals may come by different lanes, one ahead of the other, so each is judged by its
    own time. The fall is measured between two readings since the vehicle became idle.
    """

    name = "battery"
    unit = "%/h"
    severity = "warning"
    signals: ClassVar = {"soc": "battery.soc", "load": "cpu.load"}
    # `from`: where the fall is measured from; `mid`: where it will be measured from next.
    state = np.dtype(
        [
            ("open", "?"),
            ("idle_ns", "i8"),
            ("load_ns", "i8"),
            ("from_ns", "i8"),
            ("from_pct", "f4"),
            ("mid_ns", "i8"),
            ("mid_pct", "f4"),
        ]
    )
    Settings = BatterySettings

    def step(self, state: Rows, sample: Samples) -> Iterator[Finding]:
        good = np.isfinite(sample.value)
        load, soc = good & (sample.signal == "load"), good & (sample.signal == "soc")
        yield from self._load(state, sample, load)
        yield from self._charge(state, sample, soc)

    def _load(self, state: Rows, sample: Samples, load: Flags) -> Iterator[Finding]:
        idle = sample.value < self.settings.idle_load
        stale = sample.time_ns - state["load_ns"] > self.settings.load_s_max * SECOND_NS
        begins = load & idle & ((state["idle_ns"] == 0) | stale)
        ends = load & ~idle
        state["load_ns"] = np.where(load, sample.time_ns, state["load_ns"])
        state["idle_ns"] = np.where(begins, sample.time_ns, np.where(ends, 0, state["idle_ns"]))
        for name in ("from_ns", "mid_ns"):
            state[name] = np.where(begins | ends, 0, state[name])
        over = ends & state["open"]
        state["open"] &= ~over
        limit = self.settings.fall_pct_h
        yield rule.Finding("cleared", over, sample.time_ns, sample.value * np.nan, limit, "busy")

    def _charge(self, state: Rows, sample: Samples, soc: Flags) -> Iterator[Finding]:
        time_ns, window_ns = sample.time_ns, int(self.settings.window_s * SECOND_NS)
        known_ns = state["load_ns"] + int(self.settings.load_s_max * SECOND_NS)
        soc &= (state["idle_ns"] > 0) & (time_ns >= state["idle_ns"]) & (time_ns <= known_ns)
        begins = soc & (state["from_ns"] == 0)
        _put(state, "from", begins, time_ns, sample.value)
        span_ns = time_ns - state["from_ns"]
        _put(state, "mid", soc & (state["mid_ns"] == 0) & (span_ns >= window_ns // 2), time_ns,
             sample.value)  # fmt: skip
        full = soc & (span_ns >= window_ns)
        hours = np.where(full, span_ns, 1) / _HOUR_NS
        fall = (state["from_pct"].astype(float) - sample.value) / hours
        limit = self.settings.fall_pct_h
        raised = full & (fall > limit) & ~state["open"]
        cleared = full & (fall <= limit) & state["open"]
        state["open"] ^= raised | cleared
        moves = full & (state["mid_ns"] > 0)
        _put(state, "from", moves, state["mid_ns"].copy(), state["mid_pct"].copy())
        _put(state, "mid", moves, time_ns, sample.value)
        yield rule.Finding("raised", raised, time_ns, fall, limit)
        yield rule.Finding("cleared", cleared, time_ns, fall, limit)

    def sentence(self, said: AlertDraft, series: SeriesKey | None) -> str:
        if said.note == "busy":
            return f"the vehicle is busy again: {series} may fall"
        pace = f"{series} falls {said.value:.1f} %/h while idle"
        return f"{pace}, more than {said.limit:g}" if said.kind == "raised" else pace


def _put(state: Rows, name: str, where: Flags, time_ns: Ints, pct: Floats) -> None:
    state[f"{name}_ns"] = np.where(where, time_ns, state[f"{name}_ns"])
    state[f"{name}_pct"] = np.where(where, pct, state[f"{name}_pct"])
