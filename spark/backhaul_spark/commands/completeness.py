"""`backhaul-spark completeness`: what the history holds of each device, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from backhaul_spark.commands import _options

if TYPE_CHECKING:
    from backhaul_spark.completeness import LaneState

SHOWN_HOLES = 5


@click.command()
@_options.table_root
@click.option("--device", help="Only this one.")
@_options.as_json
def completeness(table_root: str, device: str | None, as_json: bool) -> None:
    """Print a line for each device, lane and epoch: held, missing, explained."""
    from backhaul_spark.completeness import lane_states
    from backhaul_spark.errors import NothingFound

    states = lane_states(table_root, device)
    if device is not None and not states:
        raise NothingFound(f"the tables hold nothing of {device}")
    if as_json:
        print(json.dumps([state.to_dict() for state in states]))
        return
    for state in states:
        print(_line(state))


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
        text += f", {low}-{high} will not come: {reason}"
    return text
