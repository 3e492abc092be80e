"""`backhaul-spark ingest`: Write every point of the hub's streams into the points table, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli import _options, _service

if TYPE_CHECKING:
    from backhaul_spark.ingest.batch import BatchOutcome
    from backhaul_spark.ingest.stream import IngestQuery

REPORT_EVERY_S = 60.0


@click.command()
@_options.hub_options("UP_*,IMPORT*")
@_options.table_root
@click.option("--once", is_flag=True, help="Ingest what is there now, then end.")
@click.option("--every", help="Ingest a batch every so often, as in 5s; runs until it is stopped.")
@_options.max_messages(50_000)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Tasks a batch: as many as cores.",
)
@click.option(
    "--checkpoint",
    help="Where Spark keeps its place in the streams; default: beside the tables.",
)
@_options.as_json
@_options.quiet
@_options.verbose
def ingest(
    hub_dir: str | None,
    servers: str | None,
    credentials: str | None,
    tls_ca: str | None,
    streams: str,
    table_root: str,
    once: bool,
    every: str | None,
    max_messages: int,
    partitions: int,
    checkpoint: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write every point of the hub's streams into the points table, each exactly once.

    Repeats are known by device, lane, epoch and sequence and left out, whenever they come. What
    cannot be read is listed in the table `rejects`, what was gone before it was read in
    `source_gaps`; neither stops the rest.
    """
    if once == (every is not None):
        raise click.UsageError("say either --once or --every SECONDS")
    every_s = None if every is None else _service.seconds(every, "--every")
    source = _options.source_options(hub_dir, servers, credentials, tls_ca, streams)
    source |= {"maxMessages": str(max_messages), "partitions": str(partitions)}
    totals = Totals(as_json=as_json, quiet=quiet)
    _run(source, table_root, checkpoint, every_s, totals, verbose)
    totals.print_summary()


def _run(
    source: dict[str, str],
    root: str,
    checkpoint: str | None,
    every_s: float | None,
    totals: Totals,
    verbose: bool,
) -> None:
    from backhaul_spark.source.jetstream_source import SourceSettings

    # A wrong address or login is known in a millisecond; Spark takes seconds to come to it.
    found = SourceSettings(source).streams()
    names = ", ".join(found) or "no stream yet"
    _options.tell(f"reading {names}; starting Spark", quiet=totals.quiet)

    from backhaul_spark.session import spark_session

    reporter = HourReporter(root, quiet=totals.quiet)
    stop = _service.Stop() if every_s is None else _service.stop_on_signals()
    spark = spark_session("backhaul-ingest", verbose=verbose)

    def query(said: Callable[[BatchOutcome], None]) -> IngestQuery:
        from backhaul_spark.ingest.batch import Ingest
        from backhaul_spark.ingest.stream import IngestQuery

        return IngestQuery(
            spark, Ingest(root, SYSTEM_CLOCK), source, SYSTEM_CLOCK, said, checkpoint
        )

    try:
        if every_s is None:
            query(totals.add).run(None)
            reporter.run()
        else:

            def said(outcome: BatchOutcome) -> None:
                totals.add(outcome)
                reporter.now_and_then(SYSTEM_CLOCK.monotonic_s())

            def run() -> None:
                # An ingest takes a number, a commit in each of its tables: none while the hub is away.
                SourceSettings(source).streams()
                query(said).run(every_s, stop.is_set)

            _service.run_on(run, stop, quiet=totals.quiet)
    finally:
        spark.stop()


class HourReporter:
    """Brings the completeness of hours up to date; where somebody else does, that is as good."""

    def __init__(self, root: str, *, quiet: bool) -> None:
        self._root = root
        self._quiet = quiet
        self._done_s = -REPORT_EVERY_S

    def now_and_then(self, now_s: float) -> None:
        """Judge if the last time is a minute ago. `now_s`: monotonic seconds."""
        if now_s - self._done_s >= REPORT_EVERY_S:
            self._done_s = now_s
            self.run()

    def run(self) -> None:
        """Judge now."""
        from backhaul_spark.completeness.hour_reports import HourReports
        from backhaul_spark.errors import TablesBusyError

        try:
            HourReports(self._root, SYSTEM_CLOCK).run()
        except TablesBusyError as error:
            _options.tell(str(error), quiet=self._quiet)


class Totals:
    """Add up the batches of one run and tell of each."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self.quiet = quiet
        self._sums: dict[str, int] = {"batches": 0}
        for name in ("messages", "points", "repeated", "rejected", "gaps", "timeless_points"):
            self._sums[name] = 0

    def add(self, outcome: BatchOutcome) -> None:
        """Take one batch in, and say so on stderr."""
        values: dict[str, Any] = asdict(outcome)
        self._sums["batches"] += 1
        for name in self._sums.keys() & values.keys():
            self._sums[name] += values[name]
        _options.tell(f"ingest {outcome.ingest}: {_sentence(values)}", quiet=self.quiet)

    def print_summary(self) -> None:
        """Print the totals of the whole run."""
        if self._as_json:
            print(json.dumps(self._sums))
        else:
            print(_sentence(self._sums))


def _sentence(values: dict[str, int]) -> str:
    text = f"{values['points']:,} points from {values['messages']:,} messages"
    notes = [
        (values["repeated"], "repeated messages left out"),
        (values["rejected"], "messages rejected (table rejects)"),
        (values["gaps"], "gaps in the streams (table source_gaps)"),
        (values["timeless_points"], "points without a believable time (date 1970-01-01)"),
    ]
    return "; ".join([text, *(f"{count:,} {what}" for count, what in notes if count)])
