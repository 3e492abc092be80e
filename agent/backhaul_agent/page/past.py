"""A stretch of one series for a chart: least and greatest reading a bucket, so that no peak is lost. Pure."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from backhaul_agent.history.merge import Run
from backhaul_codec.state.json_values import value_to_json

TEXTS_MAX = 4000
TEXT_CHARS_MAX = 200


class PastChart:
    """Takes in runs of points in any order; times in ns since 1970."""

    def __init__(self, from_ns: int, to_ns: int, buckets: int) -> None:
        self._from_ns = from_ns
        self._width_ns = max(1, -(-(to_ns - from_ns) // buckets))
        self._buckets: dict[int, list[Any]] = {}  # time, least, greatest, count
        self._newest_ns = from_ns
        self._texts: list[tuple[int, Any]] = []
        self._left_out = 0

    def add(self, run: Run) -> None:
        """Take in points."""
        for time_ns, value in zip(*run, strict=True):
            if type(value) is float and isfinite(value):
                self._add_number(time_ns, value)
                continue
            shown, _ = value_to_json(value)
            if isinstance(shown, bool | str | dict | list) or shown is None:
                self._add_text(time_ns, shown)
            else:
                self._add_number(time_ns, float(shown))

    def as_json(self) -> dict[str, Any]:
        """Return the answer as the page's charts take it (docs/people.md#history); times in µs."""
        if self._texts and not self._buckets:
            return self._as_runs()
        rows = [self._buckets[at] for at in sorted(self._buckets)]
        return {
            "kind": "number",
            # No later than the newest reading: what comes live goes on there.
            "t_us": [min(row[0], self._newest_ns) // 1000 for row in rows],
            "min": [row[1] for row in rows],
            "max": [row[2] for row in rows],
            "n": [row[3] for row in rows],
            "runs": [],
            "gaps": [],
        }

    def _as_runs(self) -> dict[str, Any]:
        runs: list[list[Any]] = []
        for time_ns, value in sorted(self._texts, key=lambda each: each[0]):
            if runs and runs[-1][2] == value:
                runs[-1][1] = time_ns // 1000
                continue
            if runs:
                runs[-1][1] = time_ns // 1000  # each holds until the next
            runs.append([time_ns // 1000, time_ns // 1000, value])
        empty: dict[str, Any] = {"t_us": [], "min": [], "max": [], "n": [], "gaps": []}
        return {"kind": "text", **empty, "runs": runs, "runs_more": self._left_out}

    def _add_number(self, time_ns: int, value: float) -> None:
        self._newest_ns = max(self._newest_ns, time_ns)
        at = (time_ns - self._from_ns) // self._width_ns
        row = self._buckets.get(at)
        if row is None:
            self._buckets[at] = [time_ns, value, value, 1]
            return
        if row[3] == 1:
            # One reading stands at its own time, several in their bucket's middle.
            row[0] = self._from_ns + at * self._width_ns + self._width_ns // 2
        row[1], row[2], row[3] = min(row[1], value), max(row[2], value), row[3] + 1

    def _add_text(self, time_ns: int, value: Any) -> None:
        if len(self._texts) >= TEXTS_MAX:
            self._left_out += 1
            return
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        self._texts.append((time_ns, text[:TEXT_CHARS_MAX]))
