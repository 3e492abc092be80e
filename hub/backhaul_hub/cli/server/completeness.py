"""`backhaul-hub completeness`: Say for each hour whether all that a device acknowledged is held."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from backhaul_codec.assurance.completeness import HOUR_NS, HourReport, hours_between
from backhaul_codec.assurance.completeness_text import line, to_json
from backhaul_hub.cli._options import directory_option, time_ns
from backhaul_hub.db.store import Registry
from backhaul_hub.uplink.completeness import hour_reports_of
from backhaul_runtime.clock import SystemClock

_HOURS_MAX = 24 * 366


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
def completeness(
    directory: Path, device: str, from_ns: int | None, to_ns: int | None, as_json: bool
) -> None:
    """Say for each hour whether all that DEVICE acknowledged in it is held.

    complete: everything is. explained: what is not held has a receipt that says why it never will
    be. waiting: something is missing, or the vehicle has not spoken since.

    Reads hub.db, whether the control plane runs or not.
    """
    to_ns = SystemClock().now_ns() if to_ns is None else to_ns
    from_ns = (to_ns // HOUR_NS - 24) * HOUR_NS if from_ns is None else from_ns
    hours = hours_between(from_ns, to_ns)
    if not 0 < len(hours) <= _HOURS_MAX:
        raise click.UsageError(f"from --from to --to are {len(hours)} hours, not 1 to {_HOURS_MAX}")
    found = asyncio.run(_hour_reports(directory, device, hours))
    if as_json:
        print(json.dumps({"device": device, "hours": [to_json(each) for each in found]}, indent=2))
        return
    if not found:
        click.echo(f"{device} had not spoken yet in any of these hours", err=True)
    for each in found:
        print(line(each))


async def _hour_reports(directory: Path, device: str, hours: range) -> list[HourReport]:
    async with await Registry.open_existing(directory / "hub.db") as registry:
        return await hour_reports_of(registry, device, hours)
