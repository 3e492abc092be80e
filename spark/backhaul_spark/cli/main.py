"""`backhaul-spark`: the command line of the history tables; one file a subcommand in `commands`.

That of the commands which needs pyspark, pyarrow or matplotlib loads them when it is called, so that
`--help` and a wrong option answer at once.
"""

from __future__ import annotations

import click

from backhaul_codec.programs.command_line import Subcommands, run
from backhaul_spark.errors import BackhaulSparkError

COMMANDS = {
    "ingest": "Write every point of the hub's streams into the points table, once.",
    "rollup": "Sum up every series by minute, hour and day.",
    "twin": "Keep a twin of each vehicle, and raise alerts.",
    "recompute-alerts": "Run the rules of `twin` over the points table.",
    "history": "Print the values of a series over time, from the tables.",
    "detect": "Find unusual readings in a series.",
    "completeness": "Print the held and missing messages of each device, and the state of each hour.",
    "anomalies": "Compare every device with its peers and its own past.",
    "report": "Write one HTML page about a day of the fleet.",
    "alerts": "Print alerts by the time that they are about, the newest last.",
    "twins": "Print the newest snapshot of each device.",
    "restated": "List the windows that late points have changed since a time.",
    "maintain": "Make large files of small ones, drop expired rows.",
    "twin-state": "Print a snapshot of every device out of the job's state store.",
}


@click.group(
    cls=Subcommands,
    package="backhaul_spark.cli",
    summaries=COMMANDS,
)
@click.version_option(package_name="backhaul")
def cli() -> None:
    """Bring the hub's streams into the fleet history, and question it.

    `ingest` writes every point once, `rollup` sums it up by minute, hour and day, `history` answers
    for one series, `detect` finds what is unusual in it, `completeness` says what is still missing,
    `anomalies` what stands out in the fleet, `restated` what late points changed.
    `twin` watches the fleet as it speaks and raises alerts (`recompute-alerts`: over the tables).
    `maintain` keeps the tables in good order.
    `report` makes a page about a day of the fleet.
    """


def main() -> None:
    """Run the command line."""
    run(cli, "backhaul-spark", BackhaulSparkError)
