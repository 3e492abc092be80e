"""Run ingest as a structured streaming query: the jetstream source in, Delta commits out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from backhaul_runtime.clock import Clock
from backhaul_spark import errors
from backhaul_spark.checkpoint import checkpoint_uri, prepare_checkpoint, with_scheme
from backhaul_spark.ingest.batch import BatchOutcome, Ingest
from backhaul_spark.ingest.checkpoint_files import batch_digest, checkpoint_id
from backhaul_spark.ingest.owed import Owed
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.source.jetstream_source import JetStreamSource, SourceSettings
from backhaul_spark.tables.part_writer import REPORT_COLUMNS, TaskReport, write_parts

_LOOK_S = 1
_LATE, _STARTS_MAX = "Python worker failed to connect back", 5

Said = Callable[["BatchOutcome"], None]


class IngestQuery:
    """One streaming query that feeds one Ingest.

    Args:
        source: options of the jetstream source; format and onGap are set here.
        said: called in the driver after each batch that did something.
        checkpoint: where Spark keeps its place, if not beside the tables: Hadoop must know the
            file system, where the tables need only delta-rs and Arrow to.
    """

    def __init__(
        self,
        spark: SparkSession,
        ingest: Ingest,
        source: Mapping[str, str],
        clock: Clock,
        said: Said = lambda outcome: None,
        checkpoint: str | None = None,
    ) -> None:
        self._spark = spark
        self._ingest = ingest
        self._source = dict(source) | {"format": "messages", "onGap": "record"}
        self._clock = clock
        self._said = said
        self._checkpoint = (
            with_scheme(checkpoint) if checkpoint else checkpoint_uri(ingest.tables.root, "ingest")
        )
        self._app = ""
        endpoint = SourceSettings(self._source).endpoint
        self._dictionaries = DictionaryReader(endpoint)
        self._owed = Owed(ingest.waiting(), endpoint, clock)

    def start(self, every_s: float | None) -> StreamingQuery:
        """Start the query: a batch `every_s` seconds, or with None everything there is, once."""
        self._spark.dataSource.register(JetStreamSource)
        prepare_checkpoint(self._spark, self._checkpoint)
        frame = self._spark.readStream.format("jetstream").options(**self._source).load()
        writer = (
            frame.writeStream.foreachBatch(self._batch)
            .queryName("backhaul-ingest")
            .option("checkpointLocation", self._checkpoint)
        )
        if every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()

    def run(self, every_s: float | None, stopping: Callable[[], bool] = lambda: False) -> None:
        """Start the query and wait until it ends, or until `stopping` says so.

        Raises:
            BackhaulSparkError: the query failed.
        """
        run_query(lambda: self.start(every_s), stopping)

    def _batch(self, messages: DataFrame, batch: int) -> None:
        planned = batch_digest(self._checkpoint, batch)
        if self._ingest.done(self._app_id(), batch, planned):
            return
        done = self._ingest.tables.done(self._app_id())
        if batch > done + 1:  # each batch is a commit, empty ones too
            raise errors.TablesBehindError(self._ingest.tables.root, done, batch)
        uri, number = self._ingest.points_uri, self._ingest.tables.next_ingest
        at_us, standing = self._clock.now_ns() // 1000, tuple(self._ingest.standing)

        dictionaries = self._dictionaries

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return write_parts(batches, uri, number, at_us, standing, dictionaries)

        rows = messages.mapInArrow(write, REPORT_COLUMNS).collect()
        reports = [TaskReport.from_row(row["facts"], bytes(row["messages"])) for row in rows]
        reports += self._owed.take_up(uri, number, at_us, standing)
        self._said(self._ingest.commit(self._app_id(), batch, reports, planned))
        self._owed.note(reports)

    def _app_id(self) -> str:
        """Name the checkpoint: batch numbers mean something only together with it.

        A new checkpoint counts from 0 again. It must not be taken for a replay of the old one.
        """
        self._app = self._app or checkpoint_id(self._checkpoint)
        return self._app


def run_query(start: Callable[[], StreamingQuery], stopping: Callable[[], bool]) -> None:
    """Start a query and wait until it ends, or until `stopping` says so.

    It is started again where Spark gave up on a process of its own: it gives one that asks for offsets
    ten seconds to start, whatever else the machine has to do.

    Raises:
        BackhaulSparkError: the query failed.
    """
    for left in reversed(range(_STARTS_MAX)):
        try:
            _run_to_end(start, stopping)
        except errors.JobFailedError as error:
            # Of an error on the way to a query, its own text has no more than a line or two.
            if _LATE not in str(error.__cause__) or not left:
                raise
        else:
            return


def _run_to_end(start: Callable[[], StreamingQuery], stopping: Callable[[], bool]) -> None:
    """Start a query and wait until it ends; end it when `stopping` says so.

    A flag that is looked at, not an exception out of a signal handler: one that strikes while
    Python talks to the JVM leaves a broken conversation behind.

    Raises:
        BackhaulSparkError: the query failed.
    """
    try:
        query = start()
        while not query.awaitTermination(_LOOK_S):
            if stopping():
                query.stop()
                return
    except Exception as error:
        if not stopping():
            raise named_error(error) from error


_CALLED, _CAUSED = "An error occurred while calling", "Caused by: "
_OURS = re.compile(r"backhaul_spark\.errors\.(\w+): (.*)")


def named_error(error: Exception) -> errors.BackhaulSparkError:
    """Find our own error inside Spark's: Python's traceback inside Java's."""
    if isinstance(error, errors.BackhaulSparkError):
        return error
    found = _OURS.findall(str(error))
    if not found:
        return errors.JobFailedError(_reason(error))
    name, text = found[-1]
    kind = getattr(errors, name, errors.JobFailedError)
    # Its fields stayed in the other process; its kind, text and hint are what is acted upon.
    named: errors.BackhaulSparkError = kind.__new__(kind)
    named.args = (text,)
    return named


def _reason(error: Exception) -> str:
    """Return Spark's description of an error, in a line."""
    first, *rest = str(error).strip().splitlines() or [repr(error)]
    if not (rest and first.startswith(_CALLED)):
        return first
    # What was called says nothing to an operator. Then comes what failed, and at last what lies beneath.
    causes = [line.removeprefix(_CAUSED) for line in rest if line.startswith(_CAUSED)]
    return "; ".join([rest[0].removeprefix(": "), *causes[-1:]])
