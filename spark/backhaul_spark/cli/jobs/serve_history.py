"""`backhaul-spark serve-history`: Answer questions of pages about the past of a series."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click
import structlog

from backhaul_spark.cli import _options
from backhaul_spark.cli._options import HubPlace, Tell

if TYPE_CHECKING:
    from backhaul_spark.jobs.metrics import JobsStanding
    from backhaul_spark.jobs.progress import JobsProgress
    from backhaul_spark.serve.server import HistoryServer

log = structlog.get_logger(__name__)

_LOOK_S = 15.0
_LOGIN = "creds/history.creds"


@click.command("serve-history")
@_options.table_root
@_options.hub_options("", "The hub's creds/history.creds.")
@click.option("--checkpoint", help="That of `ingest`; default: beside the tables.")
@_options.quiet
def serve_history(table_root: str, hub: HubPlace, checkpoint: str | None, tell: Tell) -> None:
    """Answer questions of pages about the past of a series, until it is stopped.

    The control plane passes them on, of people who may ask. HistoryAnswers come from rollups and points, and of what
    ingest has not written yet from the hub's streams. Neither Spark nor Java takes part; the tables need not be there.
    """
    from backhaul_codec.programs import json_logs
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.checkpoint import checkpoint_uri, with_scheme
    from backhaul_spark.jobs.metrics import JobsStanding
    from backhaul_spark.jobs.progress import JobsProgress
    from backhaul_spark.nats.direct_get import close_connections
    from backhaul_spark.nats.endpoint import endpoint_from
    from backhaul_spark.serve.answers import HistoryAnswers
    from backhaul_spark.serve.server import HistoryServer
    from backhaul_spark.serve.tail import STREAMS, TailReader
    from backhaul_spark.serve.view import Tables

    json_logs.configure(sys.stderr, SYSTEM_CLOCK.monotonic_s, "info")
    endpoint = endpoint_from(hub.source(_LOGIN))
    place = with_scheme(checkpoint) if checkpoint else checkpoint_uri(table_root, "ingest")
    answers = HistoryAnswers(Tables(table_root, place), TailReader(endpoint), SYSTEM_CLOCK)
    jobs = JobsProgress(table_root, endpoint, STREAMS, SYSTEM_CLOCK, checkpoint)
    standing = JobsStanding()
    server = HistoryServer(answers.answer, endpoint, alive=lambda: standing.alive)
    try:
        ready = partial(tell, "answering questions about history")
        asyncio.run(_run(server, jobs, standing, ready))
    finally:
        close_connections()


async def _run(
    server: HistoryServer, jobs: JobsProgress, standing: JobsStanding, ready: Callable[[], None]
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    looking = asyncio.create_task(_look(jobs, standing))
    try:
        await server.run(stopping, ready)
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def _look(jobs: JobsProgress, standing: JobsStanding) -> None:
    """Look at the jobs beside the tables, for ever."""
    from deltalake.exceptions import DeltaError

    from backhaul_spark.errors import BackhaulSparkError

    while True:
        try:
            standing.take(await asyncio.to_thread(jobs.look))
        except (BackhaulSparkError, DeltaError, OSError) as error:
            log.warning("jobs_not_seen", error=str(error))
        await asyncio.sleep(_LOOK_S)
