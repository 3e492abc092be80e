"""`backhaul-spark`: the command line of the history tables.

Importing this module must stay cheap: pyspark, pyarrow and matplotlib load in the commands that
need them, so that `--help` and a wrong option answer at once.
"""

from __future__ import annotations

import sys

import click

from backhaul_spark.commands.alerts import alerts
from backhaul_spark.commands.anomalies import anomalies
from backhaul_spark.commands.completeness import completeness
from backhaul_spark.commands.detect import detect
from backhaul_spark.commands.history import history
from backhaul_spark.commands.ingest import ingest
from backhaul_spark.commands.maintain import maintain
from backhaul_spark.commands.recompute_alerts import recompute_alerts
from backhaul_spark.commands.report import report
from backhaul_spark.commands.restated import restated
from backhaul_spark.commands.rollup import rollup
from backhaul_spark.commands.twin import twin
from backhaul_spark.commands.twin_state import twin_state
from backhaul_spark.commands.twins import twins
from backhaul_spark.errors import BackhaulSparkError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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


for _command in (
    ingest,
    rollup,
    twin,
    recompute_alerts,
    history,
    detect,
    completeness,
    anomalies,
    report,
    alerts,
    twins,
    restated,
    maintain,
    twin_state,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; an error of ours is a line or two on stderr and exit status 1."""
    try:
        cli()
    except BackhaulSparkError as error:
        print(f"backhaul-spark: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(1)
