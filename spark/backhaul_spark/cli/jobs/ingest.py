"""`backhaul-spark ingest`: Write every point of the hub's streams into the points table, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli import _options, _service
from backhaul_spark.cli._options import HubPlace, Tell

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
    hub: HubPlace,
    table_root: str,
    once: bool,
    every: str | None,
    max_messages: int,
    partitions: int,
    checkpoint: str | None,
    as_json: bool,
    tell: Tell,
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
    source = hub.source() | {"maxMessages": str(max_messages), "partitions": str(partitions)}
    totals = Totals(tell)
    _run(source, table_root, checkpoint, every_s, totals, verbose)
    print(json.dumps(totals.sums) if as_json else totals)


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
    totals.tell(f"reading {names}; starting Spark")
    reporter = HourReporter(root, totals.tell)
    stop = _service.Stop() if every_s is None else _service.stop_on_signals()
    with _service.spark("backhaul-ingest", verbose=verbose) as spark:

        def query(said: Callable[[BatchOutcome], None]) -> IngestQuery:
            from backhaul_spark.ingest.batch import Ingest
            from backhaul_spark.ingest.stream import IngestQuery

            writer = Ingest(root, SYSTEM_CLOCK)
            return IngestQuery(spark, writer, source, SYSTEM_CLOCK, said, checkpoint)

        def said(outcome: BatchOutcome) -> None:
            totals.add(outcome)
            reporter.now_and_then(SYSTEM_CLOCK.monotonic_s())

        def run() -> None:
            # An ingest takes a number, a commit in each of its tables: none while the hub is away.
            SourceSettings(source).streams()
            query(said).run(every_s, stop.is_set)

        if every_s is None:
            query(totals.add).run(None)
            reporter.run()
        else:
            _service.run_on(run, stop, totals.tell)


class HourReporter:
    """Brings the completeness of hours up to date; where somebody else does, that is as good."""

    def __init__(self, root: str, tell: Tell) -> None:
        self._root, self._tell = root, tell
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
            self._tell(str(error))


class Totals:
    """Add up the batches of one run and tell of each."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        names = ("messages", "points", "repeated", "rejected", "gaps", "timeless_points")
        self.sums = dict.fromkeys(("batches", *names), 0)

    def add(self, outcome: BatchOutcome) -> None:
        """Take one batch in, and say so on stderr."""
        values: dict[str, Any] = asdict(outcome)
        self.sums["batches"] += 1
        for name in self.sums.keys() & values.keys():
            self.sums[name] += values[name]
        self.tell(f"ingest {outcome.ingest}: {_sentence(values)}")

    def __str__(self) -> str:
        return _sentence(self.sums)


def _sentence(values: dict[str, int]) -> str:
    text = f"{values['points']:,} points from {values['messages']:,} messages"
    notes = [
        (values["repeated"], "repeated messages left out"),
        (values["rejected"], "messages rejected (table rejects)"),
        (values["gaps"], "gaps in the streams (table source_gaps)"),
        (values["timeless_points"], "points without a believable time (date 1970-01-01)"),
    ]
    return "; ".join([text, *(f"{count:,} {what}" for count, what in notes if count)])
