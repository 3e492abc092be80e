"""`make demo`: cut a vehicle's link, heal it, and account for every reading."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

import click

from .feeds import simulated
from .rig import RigError
from .story import Plan, Story


@click.command()
@click.option("--vehicles", default=3, show_default=True, type=click.IntRange(2, 12))
@click.option("--seed", default=1, show_default=True, help="Another seed, other journeys.")
@click.option("--cut", default=20.0, show_default=True, help="Seconds that the link is gone.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where everything that the run makes is put; emptied first.",
)
def main(vehicles: int, seed: int, cut: float, out: Path) -> None:
    """Run a hub and a small fleet on this machine, cut one link, and prove nothing is lost."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    try:
        sound = asyncio.run(_tell(vehicles, seed, cut, out.absolute()))
    except* RigError as errors:
        print(f"\ndemo: {errors.exceptions[0]}", file=sys.stderr)
        sys.exit(1)
    if not sound:
        print("demo: readings are missing or doubled; see above", file=sys.stderr)
        sys.exit(1)
    print(f"Every acknowledged reading is in the fleet's history exactly once. Look at {out}/*.png")


async def _tell(vehicles: int, seed: int, cut_s: float, out: Path) -> bool:
    devices = [f"VID-{number:03}" for number in range(1, vehicles + 1)]
    feeds = {device: simulated(device, seed, time.time_ns) for device in devices}
    story = Story(out, feeds, ("cargo", "temp", "front"), Plan(cut_s=cut_s), _say)
    return await story.run()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
