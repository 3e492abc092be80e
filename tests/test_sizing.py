"""The sizing table of the documentation is the computed one."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleet_needs import FLEETS, NEEDS, readable


def test_the_documented_table_is_the_computed_one() -> None:
    text = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text()
    for need in NEEDS:
        cells = " | ".join(readable(need.of(vehicles)) for vehicles in FLEETS)
        assert f"\n| {need.name} | {need.unit} | {cells} |\n" in text


def test_a_fleet_ten_times_as_large_needs_ten_times_as_much() -> None:
    """But for what a process costs by itself, and what only comes whole."""
    for need in NEEDS:
        small, large = need.of(10_000), need.of(100_000)
        if need.name not in ("disks for UP", "twin job, memory"):
            assert abs(large / small - 10) < 1e-9
