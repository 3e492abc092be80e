"""`backhaul-spark twin-state`: Print a snapshot of every device out of the job's state store."""

from __future__ import annotations

import click

from backhaul_spark.cli import _options, _service
from backhaul_spark.cli._twin_text import print_twins


@click.command("twin-state")
@click.option(
    "--checkpoint",
    required=True,
    help="Of the twin job: ROOT/_checkpoints/twin, a directory or an object store URI.",
)
@click.option("--config", type=click.Path(dir_okay=False), help="twin.toml, as the job has it.")
@click.option("--device", help="This one alone.")
@_options.as_json
@_options.verbose
def twin_state(
    checkpoint: str, config: str | None, device: str | None, as_json: bool, verbose: bool
) -> None:
    """Print a snapshot of every device out of the job's state store, as of its last whole batch.

    The table `twins` (`backhaul-spark twins`) says the same, half a minute later, without Spark.
    """
    from backhaul_spark.errors import NothingFoundError
    from backhaul_spark.rules.config import read_plan
    from backhaul_spark.rules.state import read_state

    plan = read_plan(config)
    with _service.spark("backhaul-twin-state", verbose=verbose) as spark:
        found = read_state(spark, checkpoint, plan).to_pylist()
    shown = [row for row in found if device in (None, row["device"])]
    if device is not None and not shown:
        raise NothingFoundError(f"the state at {checkpoint} has no {device}")
    print_twins(shown, as_json=as_json)
