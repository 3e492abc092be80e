"""`make demo`: cut a vehicle's link, heal it, and account for every reading."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tests.support.rig.parts import RigError

from .feeds import known_recording, recorded, simulated
from .simulate import Vehicle
from .story import Plan, Story

if TYPE_CHECKING:
    from .story import Feed


@click.command()
@click.option("--vehicles", default=3, show_default=True, type=click.IntRange(2, 12))
@click.option("--seed", default=1, show_default=True, help="Another seed, other journeys.")
@click.option("--cut", default=20.0, show_default=True, help="Seconds that the link is gone.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A recording to replay instead: .parquet or .csv.",
)
@click.option(
    "--map",
    "mapping",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What its columns mean; the recordings in agent/mappings/ bring their own.",
)
@click.option("--series", help="What to plot: node.type or node.type.key.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where everything that the run makes is put; emptied first.",
)
def main(
    vehicles: int,
    seed: int,
    cut: float,
    data: Path | None,
    mapping: Path | None,
    series: str | None,
    out: Path,
) -> None:
    """Run a hub and a small fleet on this machine, cut one link, and prove nothing is lost."""
    devices = [f"VID-{number:03}" for number in range(1, vehicles + 1)]
    plotted = ("cargo", "temp", "front")
    feeds: dict[str, Feed] = {
        device: simulated(Vehicle(device, seed), time.time_ns) for device in devices
    }
    if data is not None:
        known = known_recording(data)
        if known is None and mapping is None:
            raise click.UsageError(f"{data.name} comes with no mapping: say --map")
        chosen = mapping or (known[0] if known else data)
        plotted = known[1] if known else plotted
        feeds = {
            device: recorded(data, chosen, share, vehicles) for share, device in enumerate(devices)
        }
    if series is not None:
        node, _, rest = series.partition(".")
        type_, _, key = rest.partition(".")
        plotted = (node, type_, key)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    try:
        sound = asyncio.run(_tell(out.absolute(), feeds, plotted, Plan(cut_s=cut)))
    except* RigError as errors:
        print(f"\ndemo: {errors.exceptions[0]}", file=sys.stderr)
        sys.exit(1)
    if not sound:
        print("demo: readings are missing or doubled; see above", file=sys.stderr)
        sys.exit(1)
    print(
        f"Every acknowledged reading is in the fleet's history exactly once. Look at {out}/fleet.png"
    )


async def _tell(
    out: Path, feeds: dict[str, Feed], series: tuple[str, str, str], plan: Plan
) -> bool:
    return await Story(out, feeds, series, plan, _say).run()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
