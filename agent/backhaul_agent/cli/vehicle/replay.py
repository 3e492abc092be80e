"""`backhaul-agent replay`: Feed a recording through a running agent."""

from __future__ import annotations

import asyncio
import secrets
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from backhaul_agent.cli.options import server_options
from backhaul_agent.replay.feed import FeedOutcome
from backhaul_agent.replay.run import Replay
from backhaul_codec.errors import MappingError
from backhaul_codec.programs.command_line import INTERRUPTED
from backhaul_codec.recordings import mapping as mappings
from backhaul_codec.recordings.points import Tally
from backhaul_codec.recordings.readers import open_recording
from backhaul_runtime.clock import SystemClock

RUNS_SHOWN = 20


def _speed(_: click.Context, __: click.Parameter, text: str) -> float:
    """Return the factor, 0 for as fast as it goes."""
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e9:
        raise click.BadParameter("a factor above 0 (1 is as recorded), or max")
    return speed


@click.command(name="replay")
@click.argument("recording", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--map",
    "map_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Which column is what; see agent/mappings/.",
)
@click.option(
    "--speed",
    callback=_speed,
    default="1",
    show_default=True,
    help="How many times as fast as recorded, or max. Pauses over 5 s are cut short.",
)
@click.option(
    "--device-time",
    type=click.Choice(["recorded", "now"]),
    default="recorded",
    show_default=True,
    help="Keep the recorded times, or shift them all so that the first row is now: each run is new.",
)
@click.option(
    "--stamp-now",
    is_flag=True,
    help="Take a recording in of which many rows have no valid time: the agent stamps these rows.",
)
@click.option(
    "--as-new",
    is_flag=True,
    help="Send every row, whatever is kept already: rows that were sent before are there twice then.",
)
@server_options
def command(
    recording: Path,
    map_path: Path,
    speed: float,
    device_time: str,
    stamp_now: bool,
    as_new: bool,
    login: dict[str, Any],
) -> None:
    """Feed a recording, as CSV or Parquet, through the agent; exit 1 unless every point was kept.

    Each row is kept once: a run that was ended goes on where it stopped, a second run adds nothing,
    and of a file that has grown only the new rows are sent. A few rows without a valid time are
    published without one, in their place: the agent stamps them. Where there are more, nothing is sent.
    """
    mapping = mappings.load(map_path)
    if mapping.device is not None:
        raise MappingError(
            f"{map_path}: with [device] it is for backhaul-hub import: a replay is of one vehicle"
        )
    shift = device_time == "now"
    replay = Replay(
        partial(open_recording, recording, mapping.columns()),
        mapping,
        SystemClock(),
        speed=speed,
        shift=shift,
        stamp_now=stamp_now,
        mark=secrets.token_hex(8) if shift or as_new else "",
    )
    try:
        outcome = asyncio.run(replay.run(login))
    except KeyboardInterrupt:
        click.echo("", err=True)
        _report(replay, replay.outcome)
        sys.exit(INTERRUPTED)
    _report(replay, outcome)
    if not outcome.complete or replay.refused_before:
        sys.exit(1)


def _report(replay: Replay, outcome: FeedOutcome) -> None:
    """Report the fate of the rows, and how to go on."""
    before, rows = replay.rows_before, replay.rows
    if before:
        click.echo(f"{before} rows were kept before this run, with {replay.points_before} points")
    if replay.refused_before:
        click.echo(f"  {replay.refused_before} points of them were refused then", err=True)
    click.echo(
        f"{outcome.rows - before} rows, {outcome.points} points: {outcome.kept} kept, "
        f"{outcome.refused.total()} refused, {outcome.not_known} not known"
    )
    if outcome.stopped:
        click.echo(f"  stopped: {outcome.stopped}", err=True)
    if outcome.rows < rows or outcome.stopped:
        go_on = (
            "a run with --device-time now or --as-new cannot go on"
            if replay.mark
            else f"the same command goes on with row {outcome.rows}"
        )
        click.echo(f"  {outcome.rows} of {rows} rows are kept: {go_on}", err=True)
    _report_rows(replay.mapper.tally)
    for code, count in outcome.refused.items():
        click.echo(f"  {count} points refused: {code}: {outcome.last_refusal}", err=True)


def _report_rows(tally: Tally) -> None:
    if tally.rows_filtered:
        click.echo(f"  {tally.rows_filtered} rows filtered out by the mapping")
    if tally.values_null:
        click.echo(f"  {tally.values_null} empty cells left out")
    for column, count in tally.values_unfit.items():
        click.echo(f"  {count} cells of column {column!r} do not fit the mapping's dtype: left out")
    if tally.rows_untimed:
        runs = [str(a) if a == b else f"{a}-{b}" for a, b in tally.untimed]
        more = f" and {len(runs) - RUNS_SHOWN} more runs" if len(runs) > RUNS_SHOWN else ""
        click.echo(
            f"  {tally.rows_untimed} rows without a valid time, stamped by the agent when it took"
            " them in (rows count from 0): "
            f"{', '.join(runs[:RUNS_SHOWN])}{more}"
        )
