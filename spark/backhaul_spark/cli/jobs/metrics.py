"""`backhaul-spark metrics`: Tell Prometheus how far behind each job is."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import click

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli import _options, _service
from backhaul_spark.cli._options import HubPlace, Tell
from backhaul_spark.errors import BackhaulSparkError

if TYPE_CHECKING:
    from backhaul_spark.jobs.metrics import JobsSeen
    from backhaul_spark.jobs.progress import JobsProgress


@click.command()
@_options.hub_options("UP_*,IMPORT*")
@_options.table_root
@click.option(
    "--listen", default="127.0.0.1:9466", show_default=True, help="Where Prometheus asks."
)
@click.option("--every", default="15s", show_default=True, help="A look every so often.")
@click.option("--checkpoint", help="As `ingest --checkpoint` has it; default: beside the tables.")
@_options.quiet
def metrics(
    hub: HubPlace,
    table_root: str,
    listen: str,
    every: str,
    checkpoint: str | None,
    tell: Tell,
) -> None:
    """Tell Prometheus how far behind each job is; see docs/metrics.md. Runs until it is stopped.

    It reads checkpoints, tables and the list of the hub's streams; it starts no Spark, and the jobs do
    not know of it.
    """
    from backhaul_spark.jobs.progress import JobsProgress
    from backhaul_spark.nats.endpoint import endpoint_from

    every_s = _service.seconds(every, "--every")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{listen!r} is not host:port", param_hint="--listen")
    source = hub.source()
    patterns = [name.strip() for name in source.pop("streams").split(",")]

    def said(trouble: str) -> None:
        tell(trouble or "the hub answers again")

    progress = JobsProgress(
        table_root, endpoint_from(source), patterns, SYSTEM_CLOCK, checkpoint, said
    )
    asyncio.run(_serve(progress, listen, every_s, tell))


async def _serve(progress: JobsProgress, listen: str, every_s: float, tell: Tell) -> None:
    from deltalake.exceptions import DeltaError

    from backhaul_runtime import metrics_server
    from backhaul_spark.jobs.metrics import METRICS, samples

    seen: JobsSeen | None = None
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    serving = asyncio.create_task(metrics_server.serve(listen, METRICS, lambda: samples(seen)))
    tell(f"metrics on {listen}")
    try:
        while not stop.is_set():
            try:
                # In a thread: a table in an object store answers when it does, and Prometheus meanwhile.
                seen = await asyncio.to_thread(progress.look)
            except (BackhaulSparkError, DeltaError, OSError) as error:
                # What was seen last stays; how old it is stands in a metric.
                tell(f"not seen: {error}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), every_s)
    finally:
        serving.cancel()
        await asyncio.wait([serving])
