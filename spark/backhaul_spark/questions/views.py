"""The views that questions read: texts in SQL that Spark and DuckDB both understand. Pure.

A role of the settings is a view of its name: `speed(device, at_ns, n, total)` has how many readings there were
at a time and their sum. Out of the rollups a time is a minute, out of points each reading. `fuel_last(device,
at_ns, value)` has the newest of each vehicle, and `load_sum(device, n, total)` all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from backhaul_spark.decode.series import SeriesKey, parse_series
from backhaul_spark.errors import OptionError
from backhaul_spark.questions.settings import NUMBERS, SAID_NUMBERS, TEXTS, QuestionsSettings

Source: TypeAlias = Literal["rollups", "points"]
TABLES = ("points", "rollups", "trips")
"""Tables that are views of their own names."""
MINUTE_NS, TEN_MINUTES_NS = 60_000_000_000, 600_000_000_000
# Numbers as rollups take them: a double, or an integer, of 64 bits with or without a sign.
_VALUE = (
    "CASE dtype WHEN 1 THEN value_f64 WHEN 2 THEN CAST(value_i64 AS DOUBLE) "
    "WHEN 3 THEN CAST(value_i64 AS DOUBLE) "
    "+ CASE WHEN value_i64 < 0 THEN 18446744073709551616E0 ELSE 0E0 END END"
)
_READINGS = "letter IN ('f', 'p') AND tombstone % 2 = 0 AND date <> DATE '1970-01-01'"


@dataclass(frozen=True, slots=True)
class About:
    """The subject of a question.

    Attributes:
        from_ns, to_ns: ns since 1970, whole minutes, the end not included; None: whenever.
        device, fleet: only this vehicle, this fleet; None: all.
        source: rollups, which are as new as the last run of `rollup`; or points, each reading.
    """

    from_ns: int | None = None
    to_ns: int | None = None
    device: str | None = None
    fleet: str | None = None
    source: Source = "rollups"


class Views:
    """The views of a question.

    Args:
        settings: which series have which role.
        asked: what it is about.
        now_ns: what counts as now where `asked` has no end.
    """

    def __init__(self, settings: QuestionsSettings, asked: About, now_ns: int) -> None:
        self._settings, self._asked, self._now_ns = settings, asked, now_ns

    def of(self, names: tuple[str, ...]) -> dict[str, str]:
        """Return the text of each view that is needed, in the order in which they are made; tables are not among them.

        Raises:
            OptionError: a name has a character that the two kinds of SQL write differently.
        """
        found: dict[str, str] = {}
        for name in names:
            if name not in TABLES:
                self._add(name, found)
        return found

    def _add(self, name: str, found: dict[str, str]) -> None:
        if name in found:
            return
        if name != "vehicles" and self._asked.fleet is not None:
            self._add("vehicles", found)
        if name == "driving":
            self._add("speed", found)
        found[name] = self._text(name)

    def _text(self, name: str) -> str:
        match name:
            case "vehicles":
                return self._vehicles()
            case "asked":
                first, last = self._asked.from_ns, self._asked.to_ns
                return (
                    f"SELECT CAST({first or 0} AS BIGINT) AS from_ns, "
                    f"CAST({self._now_ns if last is None else last} AS BIGINT) AS to_ns"
                )
            case "limits":
                limits = self._settings.limits.items()
                return "SELECT " + ", ".join(f"{value!r}E0 AS {key}" for key, value in limits)
            case "newest":
                return self._newest()
            case "units":
                return self._units()
            case "driving":
                return (
                    f"SELECT device, at_ns - at_ns % {TEN_MINUTES_NS} AS at_ns, "
                    "sum(total) / sum(n) AS speed FROM speed GROUP BY 1, 2"
                )
        role = next(role for role in NUMBERS if name in (role, f"{role}_last", f"{role}_sum"))
        series = self._series(role)
        if name == role:
            return self._readings(series)
        return self._last(series) if name.endswith("_last") else self._sum(series)

    def _readings(self, series: str) -> str:
        if self._asked.source == "points":
            return (
                "SELECT device, at_ns, CAST(1 AS BIGINT) AS n, value AS total "
                f"FROM ({self._points(series)}) AS readings"
            )
        return (
            f"SELECT device, first_time_ns - first_time_ns % {MINUTE_NS} AS at_ns, "
            f"count AS n, sum AS total FROM rollups WHERE {self._minutes()} "
            f"AND count > 0 AND {series}{self._whose()}"
        )

    def _points(self, series: str) -> str:
        return (
            f"SELECT device, time_ns AS at_ns, {_VALUE} AS value FROM points WHERE {_READINGS} "
            f"AND dtype <= 3 AND NOT coalesce(isnan(value_f64), false) "
            f"AND {self._within('time_ns')} AND {series}{self._whose()}"
        )

    def _last(self, series: str) -> str:
        if self._asked.source == "points":
            return (
                "SELECT device, max(at_ns) AS at_ns, max_by(value, at_ns) AS value "
                f"FROM ({self._points(series)}) AS readings GROUP BY device"
            )
        return (
            "SELECT device, max(last_time_ns) AS at_ns, max_by(last, last_time_ns) AS value "
            f"FROM rollups WHERE {self._days()} AND count > 0 AND {series}{self._whose()} "
            "GROUP BY device"
        )

    def _sum(self, series: str) -> str:
        if self._asked.source == "points":
            return (
                "SELECT device, count(*) AS n, sum(value) AS total "
                f"FROM ({self._points(series)}) AS readings GROUP BY device"
            )
        return (
            "SELECT device, CAST(sum(count) AS BIGINT) AS n, sum(sum) AS total FROM rollups "
            f"WHERE {self._days()} AND count > 0 AND {series}{self._whose()} GROUP BY device"
        )

    def _newest(self) -> str:
        if self._asked.source == "points":
            return (
                "SELECT device, node, type, key, max(time_ns) AS at_ns, "
                f"max_by({_VALUE}, CASE WHEN dtype <= 3 THEN time_ns END) AS value, "
                "max_by(value_text, CASE WHEN dtype = 4 THEN time_ns END) AS text "
                f"FROM points WHERE {_READINGS} AND dtype <= 4 "
                "AND NOT coalesce(isnan(value_f64), false) "
                f"AND {self._within('time_ns')}{self._whose()} GROUP BY device, node, type, key"
            )
        return (
            "SELECT device, node, type, key, max(last_time_ns) AS at_ns, "
            "max_by(last, CASE WHEN count > 0 THEN last_time_ns END) AS value, "
            "max_by(last_text, CASE WHEN texts > 0 THEN last_time_ns END) AS text "
            f"FROM rollups WHERE {self._days()} AND count + texts > 0{self._whose()} "
            "GROUP BY device, node, type, key"
        )

    def _units(self) -> str:
        rows = [
            "SELECT '' AS node, '' AS type, '' AS key, '' AS unit WHERE false",
            *(
                f"SELECT {', '.join(_text(each) for each in (*parse_series(name), unit))}"
                for name, unit in self._settings.units.items()
            ),
        ]
        return " UNION ALL ".join(rows)

    def _vehicles(self) -> str:
        """Return the words of vehicles on themselves, of all times."""
        if self._asked.source == "points":
            number, text, at, some = _VALUE, "value_text", "time_ns", f"{_READINGS} AND dtype <= 4"
        else:
            number, text, at, some = "last", "last_text", "last_time_ns", "width = '1d'"
        columns, wanted = [], []
        for role in (*TEXTS, *SAID_NUMBERS):
            series, said = self._series(role), number if role in SAID_NUMBERS else text
            when = f"CASE WHEN {series} AND {said} IS NOT NULL THEN {at} END"
            columns.append(f"max_by({said}, {when}) AS {role}")
            wanted.append(f"({series})")
        device = "" if self._asked.device is None else f" AND device = {_text(self._asked.device)}"
        table = self._asked.source
        inner = (
            f"SELECT device, {', '.join(columns)} FROM {table} "
            f"WHERE {some} AND ({' OR '.join(wanted)}){device} GROUP BY device"
        )
        if self._asked.fleet is None:
            return inner
        return f"SELECT * FROM ({inner}) AS said WHERE fleet = {_text(self._asked.fleet)}"

    def _minutes(self) -> str:
        return f"width = '1m' AND {self._within('first_time_ns')}"

    def _days(self) -> str:
        """Return a condition for as few windows as have all of the time that is asked for, each once."""
        if self._asked.from_ns is None and self._asked.to_ns is None:
            return "width = '1d'"
        return self._minutes()

    def _within(self, column: str) -> str:
        return " AND ".join(self._bounds(column)) or "true"

    def _bounds(self, column: str) -> Iterator[str]:
        if (first := self._asked.from_ns) is not None:
            yield f"date >= DATE '{_day(first)}' AND {column} >= {first}"
        if (last := self._asked.to_ns) is not None:
            yield f"date <= DATE '{_day(last - 1)}' AND {column} < {last}"

    def _whose(self) -> str:
        found = ""
        if self._asked.device is not None:
            found += f" AND device = {_text(self._asked.device)}"
        if self._asked.fleet is not None:
            found += " AND device IN (SELECT device FROM vehicles)"
        return found

    def _series(self, role: str) -> str:
        return _is(self._settings.series(role))


def _is(series: SeriesKey) -> str:
    return " AND ".join(f"{name} = {_text(each)}" for name, each in series._asdict().items())


def _text(text: str) -> str:
    """Return a text as both write it. Raises: OptionError."""
    if not text.isprintable() or "'" in text or "\\" in text:
        raise OptionError("name", text, "one without quotes and backslashes")
    return f"'{text}'"


def _day(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).date().isoformat()
