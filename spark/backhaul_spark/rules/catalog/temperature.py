"""Too hot: above the device's own threshold, several samples in a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from backhaul_spark.rules import rule
from backhaul_spark.rules.rule import AlertDraft, Finding, Rows, Samples

_ROW_MAX = 255


class TemperatureSettings(rule.Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`limit_c`: for devices without a threshold of their own, deg C."""

    limit_c: float = 60.0
    samples: Annotated[int, Meta(ge=1, le=_ROW_MAX)] = 3
    cool_by_c: float = 5.0


class Temperature(rule.Rule):
    """Temperature, deg C, above config point `temp_max` for 3 consecutive samples."""

    name = "temperature"
    unit = "deg C"
    severity = "critical"
    signals: ClassVar = {"temp": "battery.temp"}
    heads: ClassVar = {"temp_max": "config.temp_max"}
    state = np.dtype([("open", "?"), ("above", "u1")])
    Settings = TemperatureSettings

    def step(self, state: Rows, sample: Samples) -> Iterator[Finding]:
        own = sample.heads["temp_max"]
        limit = np.where(np.isnan(own), self.settings.limit_c, own)
        above = sample.value > limit
        in_a_row = np.minimum(state["above"].astype(int) + 1, _ROW_MAX)
        state["above"] = np.where(above, in_a_row, 0)
        raised = (state["above"] >= self.settings.samples) & ~state["open"]
        # A reading that is no number says nothing; it does not end an alert.
        cleared = (sample.value <= limit) & state["open"]
        state["open"] ^= raised | cleared
        yield rule.Finding("raised", raised, sample.time_ns, sample.value, limit)
        yield rule.Finding("cleared", cleared, sample.time_ns, sample.value, limit)

    def command(self, said: AlertDraft) -> tuple[str, dict[str, Any]] | None:
        if said.kind != "raised":
            return None
        return "cool_down", {"target_c": said.limit - self.settings.cool_by_c}
