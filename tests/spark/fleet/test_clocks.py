"""Which clocks are wrong, from when the hub stored what is said to have been read when."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from backhaul_spark.fleet.clocks import LAGS, HandedOver, WrongClock, late_alone, wrong_clocks

HOURS = range(100, 110)


def lags(*rows: tuple[str, int, float, int, int]) -> pa.Table:
    """Rows of (device, hour, lag in s, points, unset), beside a hundred sound vehicles."""
    sound = [(f"OK-{i}", hour, 1.0 + i / 100, 360, 0) for i in range(100) for hour in HOURS]
    columns = zip(*[*sound, *rows], strict=True)
    device, hour, lag_s, points, unset = (list(column) for column in columns)
    values = [device, hour, [each * 1e6 for each in lag_s], points, unset]
    return pa.table(dict(zip(LAGS.names, values, strict=True)), schema=LAGS)


def test_a_reading_stored_before_it_was_taken_is_a_clock_ahead() -> None:
    found = wrong_clocks(lags(("FAST", 103, -7200.0, 10, 0), ("FAST", 104, 5.0, 10, 0)))
    assert found == [WrongClock("FAST", 7200.0, 0, 20)]


def test_a_clock_behind_keeps_its_distance_and_a_backlog_does_not() -> None:
    slow = [("SLOW", hour, 3600.0 + hour % 3, 10, 0) for hour in HOURS]
    late = [("LATE", hour, 3600.0 * (110 - hour), 10, 0) for hour in HOURS]
    [found] = wrong_clocks(lags(*slow, *late))
    assert found.device == "SLOW"
    assert found.offset_s == pytest.approx(-3600, abs=5)


def test_a_hub_that_was_away_is_nobodys_clock() -> None:
    away = [(f"OK-{i}", hour, 3600.0, 10, 0) for i in range(300) for hour in range(200, 205)]
    assert wrong_clocks(lags(*away)) == []


def test_readings_stamped_without_a_clock_are_told() -> None:
    found = wrong_clocks(lags(("UNSET", 103, 1.0, 100, 30), ("SELDOM", 103, 1.0, 100, 3)))
    assert found == [WrongClock("UNSET", 0.0, 30, 100)]


def test_no_points_no_clocks() -> None:
    assert wrong_clocks(LAGS.empty_table()) == []


def test_of_a_device_nothing_tells_whose_readings_all_came_later() -> None:
    day = lags(("LIVE", 103, 5.0, 10, 0))
    late = lags(("LIVE", 120, 90_000.0, 10, 0), ("OLD", 120, 90_000.0, 10, 0))
    late = pa.concat_tables([late, lags(("BACK", 120, 90_000.0, 10, 0), ("BACK", 121, 2.0, 10, 0))])
    handed = HandedOver(["BACK", "LIVE", "OLD"], 0, 1)
    assert late_alone(day, handed, late) == ["OLD"]
