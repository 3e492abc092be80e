"""`backhaul-spark completeness`: Print the held and missing messages of each device, and the state of each hour."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import click

from backhaul_codec.assurance.completeness import HourReport
from backhaul_codec.assurance.completeness_text import line as hour_line
from backhaul_codec.assurance.completeness_text import to_json
from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options

if TYPE_CHECKING:
    from backhaul_spark.completeness.lane_states import LaneState

SHOWN_HOLES = 5
SHOWN_HOURS = 24


@click.command()
@_options.table_root
@click.option("--device", help="Only this one.")
@click.option(
    "--no-update", is_flag=True, help="Show the completeness reports as the table has them."
)
@_options.as_json
def completeness(table_root: str, device: str | None, no_update: bool, as_json: bool) -> None:
    """Print the held and missing messages of each device, lane and epoch, and the state of each hour.

    The hours are those in which the vehicle acknowledged, judged by its own marks: complete,
    explained (what is missing has a receipt), waiting, or imported (no vehicle has spoken of it). They are brought up to date first.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.completeness.hour_reports import HourReports, hour_reports
    from backhaul_spark.completeness.lane_states import lane_states
    from backhaul_spark.errors import NothingFoundError

    states = lane_states(table_root, device)
    if not no_update:
        HourReports(table_root, SYSTEM_CLOCK).run()
    hours = hour_reports(table_root, device)
    if device is not None and not states and not hours:  # of an erased one there are hours alone
        raise NothingFoundError(f"the tables hold nothing of {device}")
    if as_json:
        lanes = [state.to_dict() for state in states]
        found = [{"device": each} | to_json(hour) for each, hour in hours]
        print(json.dumps({"lanes": lanes, "hours": found}))
        return
    for state in states:
        print(_line(state))
    for name, group in groupby(hours, key=lambda pair: pair[0]):
        _print_hours(name, [hour for _, hour in group])


def _line(state: LaneState) -> str:
    text = (
        f"{state.device} {state.lane} epoch {state.epoch}: {state.state}, {state.points:,} points in {state.messages:,} messages, "
        f"sequence {state.lowest} to {state.highest}"
    )
    if state.missing:
        holes = ", ".join(
            f"{low}-{high}" if low < high else str(low) for low, high in state.holes[:SHOWN_HOLES]
        )
        more = " ..." if len(state.holes) > SHOWN_HOLES else ""
        text += f", {state.missing:,} missing (holes {holes}{more})"
    for low, high, reason in state.explained[:SHOWN_HOLES]:
        text += f", {low}-{high} will not come: {shown(reason)}"
    return text


def _print_hours(device: str, hours: list[HourReport]) -> None:
    counts = Counter(hour.state for hour in hours)
    said = ", ".join(
        f"{counts[state]:,} {state}"
        for state in ("complete", "imported", "explained", "erased", "waiting")
        if counts[state]
    )
    print(f"{device} hours: {said}")
    others = [hour for hour in hours if hour.state not in ("complete", "imported", "erased")]
    if len(others) > SHOWN_HOURS:
        print(f"  {len(others) - SHOWN_HOURS:,} earlier ones that are not complete (see --json)")
    for hour in others[-SHOWN_HOURS:]:
        print(f"  {hour_line(hour)}")
