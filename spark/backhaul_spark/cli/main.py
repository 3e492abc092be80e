"""`backhaul-spark`: the command line of the history tables; one file a subcommand, in `jobs` and `answers`.

That of the commands which needs pyspark, pyarrow or matplotlib loads them when it is called, so that
`--help` and a wrong option answer at once.
"""

from __future__ import annotations

from typing import Any

import click

from backhaul_codec.programs.command_line import Subcommands, run
from backhaul_spark.cli._options import ROOT
from backhaul_spark.errors import BackhaulSparkError


class Commands(Subcommands):
    """Those of them that cannot write their tables say why in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand that was asked for."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from backhaul_spark.tables.storage import storage_error

            found = storage_error(error, ctx.meta[ROOT]) if ROOT in ctx.meta else None
            if found is None:
                raise
            raise found from error


@click.group(
    cls=Commands,
    program="backhaul-spark",
    rooms=[f"backhaul_spark.cli.{room}" for room in ("jobs", "answers")],
)
@click.version_option(package_name="backhaul")
def cli() -> None:
    """Bring the hub's streams into the fleet history, and question it.

    `ingest` writes every point once, `rollup` sums it up by minute, hour and day, `history` answers
    for one series, `detect` finds what is unusual in it, `completeness` says what is still missing,
    `anomalies` what stands out in the fleet, `restated` what late points changed.
    `twin` watches the fleet as it speaks and raises alerts (`recompute-alerts`: over the tables).
    `places` makes trips, stops and crossings of fences of positions.
    `ask` answers questions about a whole fleet.
    `maintain` keeps the tables in good order.
    `report` makes a page about a day of the fleet.
    """


def main() -> None:
    """Run the command line."""
    run(cli, "backhaul-spark", BackhaulSparkError)
