"""Unusual readings: of each of some series by itself, and of all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from backhaul_spark.decode.series import SeriesKey
from backhaul_spark.detect import detector, joint, rows
from backhaul_spark.detect.detector import Detector
from backhaul_spark.detect.findings import together_text, why
from backhaul_spark.detect.joint import JointDetector, JointTuning
from backhaul_spark.detect.rows import JoinedRows
from backhaul_spark.rules import rule
from backhaul_spark.rules.alert import Kind
from backhaul_spark.rules.rule import SECOND_NS, AlertDraft, Finding, Samples

_Positive = Annotated[float, Meta(gt=0)]


class UnusualSettings(rule.Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`series`: those that are judged, such as `pump.flow`; without any the rule says nothing.

    `score`: of one series, from which on it is told (0: none is judged by itself). `together`: of all of them, where there
    are two or more; 1 is how far a well machine strays (0: they are not judged together). `step_s`: the time of a
    row. `learning`: rows, and readings of each series, that are taken for well. `rows`: so many in a row must be unusual. `quiet_s`: an alert ends when
    nothing was unusual for so long.
    """

    series: Annotated[tuple[str, ...], Meta(max_length=joint.SIGNALS_MAX)] = ()
    score: Annotated[float, Meta(ge=0)] = 3.0
    together: Annotated[float, Meta(ge=0)] = 2.0
    step_s: _Positive = 60.0
    learning: Annotated[int, Meta(ge=100)] = 3000
    rows: Annotated[int, Meta(ge=1, le=255)] = 5
    quiet_s: _Positive = 3600.0


class Unusual(rule.Rule):
    """Readings that are unusual for their device, by all that it said before.

    Unlike other rules it goes from device to device: a detector is no matter of one step for all.
    """

    name = "unusual"
    unit = "score"
    severity = "info"
    Settings = UnusualSettings
    state = np.dtype([("open", "?")])

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        names = self.settings.series
        # As the configuration has them, not the class.
        self.signals = {name: name for name in names}  # type: ignore[misc]
        self._at = {name: place for place, name in enumerate(names)}
        self._alone = self.settings.score > 0
        self._joint = self.settings.together > 0 and len(names) > 1
        self._one = replace(detector.DEFAULT, learning=self.settings.learning)
        self._tuning = JointTuning(learning=self.settings.learning)
        fields: list[Any] = [("open", "?"), ("last_ns", "i8"), ("row", "u1")]
        if self._alone and names:
            fields.append(("alone", "f8", (len(names), detector.FLOATS)))
        if self._joint:
            fields.append(("rows", "f8", (rows.floats_of(len(names)),)))
            fields.append(("joint", "f8", (joint.floats_of(len(names)),)))
        self.state = np.dtype(fields)  # type: ignore[misc]

    def step(self, state: rule.Rows, sample: Samples) -> Iterator[Finding]:
        columns = (sample.signal.tolist(), sample.time_ns.tolist(), sample.value.tolist())
        for at, (signal, time_ns, value) in enumerate(zip(*columns, strict=True)):
            device = state[at : at + 1]
            quiet_ns = int(self.settings.quiet_s * SECOND_NS)
            if device["open"][0] and time_ns - device["last_ns"][0] > quiet_ns:
                device["open"] = False
                yield self._finding("cleared", sample, at, time_ns, 0.0, self._limit, "")
            told = [*self._by_itself(device, signal, time_ns, value)] if self._alone else []
            if self._joint:
                told += self._together(device, signal, time_ns, value)
            for when_ns, score, limit, note in told:
                device["last_ns"] = max(int(device["last_ns"][0]), when_ns)
                if not device["open"][0]:
                    device["open"] = True
                    yield self._finding("raised", sample, at, time_ns, score, limit, note)

    def _by_itself(
        self, device: rule.Rows, signal: str, time_ns: int, value: float
    ) -> Iterator[tuple[int, float, float, str]]:
        packed = device["alone"][0, self._at[signal]]
        one = Detector(self._one)
        one.unpack(packed)
        judged = one.judge(time_ns, value)
        packed[:] = one.pack()
        if judged.score >= self.settings.score:
            text = f"{signal} is {value:g}, where {judged.usual:g} is usual at this hour{why(judged.parts)}"
            yield time_ns, judged.score, self.settings.score, text

    def _together(
        self, device: rule.Rows, signal: str, time_ns: int, value: float
    ) -> Iterator[tuple[int, float, float, str]]:
        count, limit = len(self._at), self.settings.together
        step_ns = int(self.settings.step_s * SECOND_NS)
        made = JoinedRows(count, step_ns, device["rows"][0]).add(self._at[signal], time_ns, value)
        machine = JointDetector(count, self._tuning, device["joint"][0])
        for row in made:
            judged = machine.judge(row.values)
            in_a_row = int(device["row"][0]) + 1 if judged.score >= limit else 0
            device["row"] = min(in_a_row, 255)
            if in_a_row >= self.settings.rows:
                parts = dict(zip(self._at, judged.parts, strict=True))
                text = together_text(judged.score, parts, judged.aspect)
                yield row.time_ns, judged.score, limit, text

    @property
    def _limit(self) -> float:
        return float(self.settings.score if self._alone else self.settings.together)

    @staticmethod
    def _finding(
        kind: Kind,
        sample: Samples,
        at: int,
        time_ns: int,
        score: float,
        limit: float,
        note: str,
    ) -> Finding:
        where = np.zeros(len(sample.time_ns), np.bool_)
        where[at] = True
        times, scores = sample.time_ns.copy(), np.full(len(where), score)
        times[at] = time_ns
        return Finding(kind, where, times, scores, limit, note)

    def sentence(self, said: AlertDraft, series: SeriesKey | None) -> str:
        return said.note if said.kind == "raised" else "nothing is unusual any more"
