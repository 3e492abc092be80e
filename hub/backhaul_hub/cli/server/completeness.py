"""`backhaul-hub completeness`: Say for each hour whether all that a device acknowledged is held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backhaul_codec.assurance.completeness import HOUR_NS, hours_between
from backhaul_hub.cli._act import done
from backhaul_hub.cli._options import awaited, directory_option, time_ns
from backhaul_runtime.clock import SystemClock

_HOURS_MAX = 24 * 366
_WEEK_NS = 7 * 24 * HOUR_NS


@click.command()
@directory_option
@click.argument("device")
@click.option(
    "--from",
    "from_ns",
    callback=time_ns,
    metavar="TIME",
    help="UTC; default: 24 hours before --to.",
)
@click.option(
    "--to", "to_ns", callback=time_ns, metavar="TIME", help="UTC, exclusive; default: now."
)
@click.option("--json", "as_json", is_flag=True, help="All ranges, for programs.")
@awaited
async def completeness(
    directory: Path, device: str, from_ns: int | None, to_ns: int | None, as_json: bool
) -> None:
    """Say for each hour whether all that DEVICE acknowledged in it is held.

    complete: everything is. explained: what is not held has a receipt that says why it never will
    be. waiting: something is missing, or the vehicle has not spoken since.

    Answered whether the control plane runs or not.
    """
    to_ns = SystemClock().now_ns() if to_ns is None else to_ns
    from_ns = (to_ns // HOUR_NS - 24) * HOUR_NS if from_ns is None else from_ns
    hours = hours_between(from_ns, to_ns)
    if not 0 < len(hours) <= _HOURS_MAX:
        raise click.UsageError(f"from --from to --to are {len(hours)} hours, not 1 to {_HOURS_MAX}")
    found, lines = list[dict[str, Any]](), list[str]()
    # A week with each question: an answer is one message.
    for begin_ns in range(from_ns, to_ns, _WEEK_NS):
        question = {"device": device, "from_ns": begin_ns, "to_ns": min(begin_ns + _WEEK_NS, to_ns)}
        answer = await done(directory, "completeness", question, reads=True)
        found += answer["hours"]
        lines += answer["lines"]
    if as_json:
        print(json.dumps({"device": device, "hours": found}, indent=2))
        return
    if not found:
        click.echo(f"{device} had not spoken yet in any of these hours", err=True)
    for each in lines:
        print(each)
