"""`make chaos`: a soak of fresh or given faults; a failing schedule is printed, and shrunk on request."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tests.chaos.kinds import CLUSTER, HISTORY, STANDBY, habits
from tests.chaos.link import NoToxiproxyError, server_binary
from tests.chaos.operators import LONGEST_S
from tests.chaos.run import DEVICES, Plan, run
from tests.chaos.schedule import from_line, to_line
from tests.chaos.shrink import shrink

if TYPE_CHECKING:
    from tests.chaos.run import Outcome
    from tests.chaos.schedule import Fault

OUT = Path("chaos-out")
_LONG_MINUTES = 5.0


@click.command()
@click.option("--seed", type=int, help="Default: a fresh one.")
@click.option(
    "--minutes", type=click.FloatRange(0.1, LONGEST_S / 60), default=1.0, show_default=True
)
@click.option("--faults", "line", help="A schedule as a run prints it; drawn by default.")
@click.option("--kinds", default="", help="Draw these only, as in cut,flap,late.")
@click.option(
    "--publish",
    "publish_s",
    type=click.FloatRange(0.01, 60),
    help="Longest time between two batches, in s. Default: 0.3; of 5 minutes and more 3.",
)
@click.option("--history", "with_history", is_flag=True, help="Have Spark write the table.")
@click.option("--cluster", is_flag=True, help="Have a hub of three servers.")
@click.option("--standby", is_flag=True, help="Have two control planes, of which one leads.")
@click.option("--shrink", "trials_max", type=int, default=0, help="Runs to shrink a failure with.")
def main(
    seed: int | None,
    minutes: float,
    line: str | None,
    kinds: str,
    publish_s: float | None,
    trials_max: int,
    *,
    with_history: bool,
    cluster: bool,
    standby: bool,
) -> None:
    """Run the whole system under faults and judge it from outside; exit 1 at a violation."""
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    # Long runs publish less at a time: all that was acknowledged is looked at in the end.
    usual_s, pause_s = (0.3, 0.7) if minutes < _LONG_MINUTES else (3.0, 3.0)
    publish_s = usual_s if publish_s is None else publish_s
    besides = {HISTORY: with_history, CLUSTER: cluster, STANDBY: standby}
    parts = tuple(part for part, wanted in besides.items() if wanted)
    only = tuple(name for name in kinds.split(",") if name)
    try:
        server_binary()
        plan = Plan.of(
            seed, minutes * 60, pause_s=pause_s, publish_s=publish_s, parts=parts, only=only
        )
        if line is not None:
            plan = replace(plan, faults=tuple(from_line(line, habits(parts), DEVICES)))
    except (NoToxiproxyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    having = "".join(f", {part}" for part in parts)
    print(f"seed {seed}, {minutes:g} minutes, {len(plan.faults)} faults{having}", flush=True)
    outcome = _run(plan)
    print(outcome)
    if outcome.wrong and trials_max:
        print(f"shrunk: {_shrunk(plan, trials_max).command()}")
    if outcome.failed:
        sys.exit(1)


def _shrunk(plan: Plan, trials_max: int) -> Plan:
    """Return a plan with fewer faults that has failed, too."""

    def fails(faults: list[Fault]) -> bool:
        wrong = _run(replace(plan, faults=tuple(faults))).wrong
        print(f"{len(faults)} faults: {len(wrong)} violations: {to_line(faults)}", flush=True)
        return bool(wrong)

    return replace(plan, faults=tuple(shrink(plan.faults, fails, trials_max=trials_max)))


def _run(plan: Plan) -> Outcome:
    """Run a plan; what servers and programs have left behind stays where it failed."""
    OUT.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"seed-{plan.seed}-", dir=OUT)).absolute()
    outcome = asyncio.run(run(plan, directory))
    if outcome.failed:
        print(f"logs, stores and the diary are left in {directory}")
    else:
        shutil.rmtree(directory)
    return outcome


if __name__ == "__main__":
    main()
