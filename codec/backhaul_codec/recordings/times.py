"""Whether a recording's times fit its mapping: judged before any row is used. Pure.

A wrong unit or format makes times of no date, or of 1970. Points with such times would be history for
ever; so a recording is refused where more than a few rows have no valid time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from backhaul_codec.errors import MappingError
from backhaul_codec.points import INT64_MAX, INT64_MIN
from backhaul_codec.state.rfc3339 import time_ns_of

UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
FEW_ROWS = 10
FEW_SHARE = 0.01
_YEAR_FIRST, _YEAR_LAST = 1990, 2099
_FIRST_NS = int(datetime(_YEAR_FIRST, 1, 1, tzinfo=UTC).timestamp()) * 10**9
_LAST_NS = int(datetime(_YEAR_LAST + 1, 1, 1, tzinfo=UTC).timestamp()) * 10**9
_SAMPLE = 200


def row_time(raw: Any, unit: str, *, dates: bool = False) -> int | None:
    """Return a cell as ns since the Unix epoch, None where it is no valid time.

    ``dates``: one outside the years 1990 to 2099 is none.
    """
    time = _instant(raw, unit)
    if time is None:
        return None
    low, high = (_FIRST_NS, _LAST_NS) if dates else (INT64_MIN, INT64_MAX + 1)
    return time if low <= time < high else None


def _instant(raw: Any, unit: str) -> int | None:
    """Return a cell as ns since the Unix epoch, however many; None where it is no number or date."""
    try:
        if raw is None or isinstance(raw, bool):
            return None
        if unit == "rfc3339":
            return time_ns_of(str(raw))
        if isinstance(raw, int):
            return raw * UNIT_NS[unit]
        # Decimal, so that "1617016425.123456789" keeps its nanoseconds.
        scaled = Decimal(raw if isinstance(raw, str) else repr(raw)) * UNIT_NS[unit]
        return int(scaled.to_integral_value()) if abs(scaled) < 1 << 80 else None
    except (ValueError, InvalidOperation, OverflowError):
        return None


@dataclass(slots=True)
class TimeCheck:
    """Counts rows and those of them without a valid time; ``unit`` and ``dates`` are the mapping's."""

    unit: str
    dates: bool = True
    rows: int = 0
    rows_untimed: int = 0
    _empty: int = 0
    _samples: list[tuple[int, Any]] = field(default_factory=list)

    def note(self, row: int, raw: Any, time_ns: int | None) -> None:
        """Take in a row's cell, and the time that it says."""
        self.rows += 1
        if time_ns is not None:
            return
        self.rows_untimed += 1
        if raw is None:
            self._empty += 1
        elif len(self._samples) < _SAMPLE:
            self._samples.append((row, raw))

    @property
    def problem(self) -> str:
        """Say why the recording is refused; nothing where at most a few rows have no valid time."""
        bad = self.rows_untimed
        if bad <= max(FEW_ROWS, FEW_SHARE * self.rows) and 2 * bad < max(self.rows, 1):
            return ""
        said = f"{bad} of {self.rows} rows have no valid time by unit {self.unit!r}"
        if self._empty:
            said += f", {self._empty} of them none at all"
        if not self._samples:
            return said
        row, raw = self._samples[0]
        return (
            f"{said}: row {row} (from 0) says {str(raw)[:40]!r}, {self._seen_as(raw)}{self._hint()}"
        )

    def require(self, column: str, otherwise: str) -> None:
        """Refuse a recording that most probably is read wrongly; ``otherwise``: how to have it read.

        Raises:
            MappingError: more than a few rows have no valid time.
        """
        if problem := self.problem:
            raise MappingError(f"{problem}. Nothing was sent; {otherwise}", column=column)

    def _seen_as(self, raw: Any) -> str:
        time_ns = _instant(raw, self.unit)
        if time_ns is None:
            return "which is no such time"
        return f"which would be in the year {1970 + time_ns // (31_556_952 * 10**9)}"

    def _hint(self) -> str:
        """Say by which unit most of the cells would be dates."""
        for unit in (*UNIT_NS, "rfc3339"):
            fit = sum(row_time(raw, unit, dates=True) is not None for _, raw in self._samples)
            if unit != self.unit and 10 * fit >= 9 * len(self._samples):
                return f"; it looks like unit = {unit!r}"
        zoned = [(row, f"{raw}Z") for row, raw in self._samples]
        if all(row_time(raw, "rfc3339", dates=True) is not None for _, raw in zoned):
            return "; it looks like rfc3339 without a zone, and a time without one is nobody's"
        if self.dates and self.unit != "rfc3339":
            return (
                "; where times count from something else than 1970, say dates = false below [time]"
            )
        return ""
