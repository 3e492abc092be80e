"""The one place that starts Spark, with the settings that this package counts on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from backhaul_spark.errors import JavaMissingError, JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where this process is the whole cluster.
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # The work is done by Python, numpy and delta-rs: Java compiled for speed never earns back the core
    # that compiling takes for minutes, and a collector with threads of its own finds none free (ADR 29).
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Spark's own default, INT96, has no statistics and other readers have dropped it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stopTimeout": "30s",
    # Frames travel as bytes of a row: a thousand rows are plenty for one Arrow batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.ui.showConsoleProgress": "false",
}


def spark_session(app: str = "backhaul", *, verbose: bool = False) -> SparkSession:
    """Return the running session, or start one; under spark-submit its settings win.

    Without spark-submit it has two cores of this machine, and tries each task three times.

    Args:
        app: the name that cluster tools show.
        verbose: let Spark's own log through.

    Raises:
        JavaMissingError: there is none, or not of a version that Spark works on.
        JobFailedError: Spark does not start for another reason.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        settings = _not_submitted(SETTINGS)
    else:
        _require_java()
        settings = LOCAL_SETTINGS | SETTINGS
        # Workers must be this very interpreter: another one on PATH has none of these packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Spark looks the host name up and warns when it is the loopback, which it shall be here.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master("local[2,3]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _stderr_of_children(verbose) as log, _own_ctrl_c():
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise _why_not_started(log, error) from error
    spark.sparkContext.setLogLevel("WARN" if verbose else "OFF")
    return spark


def _not_submitted(settings: dict[str, str]) -> dict[str, str]:
    """Leave out settings of spark-submit: a builder's setting would win over them."""
    from pyspark import SparkConf

    submitted = SparkConf()
    return {key: value for key, value in settings.items() if not submitted.contains(key)}


@contextmanager
def _own_ctrl_c() -> Iterator[None]:
    """Keep the caller's way to take Ctrl-C.

    pyspark puts its own in the place, which asks Java to cancel all jobs in the middle of whatever is
    said to Java just then, and raises out of that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, own)


@contextmanager
def _stderr_of_children(verbose: bool) -> Iterator[IO[bytes]]:
    """Let the JVM, and the workers that it starts, inherit a file as their stderr.

    The JVM and its launcher write warnings there before any log setting is read, and Spark's log
    of a failed task repeats in two hundred lines what the exception says in one.
    """
    with tempfile.TemporaryFile() as log:
        if verbose:
            yield log
            return
        sys.stderr.flush()
        own = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield log
        finally:
            os.dup2(own, 2)
            os.close(own)


def _require_java() -> None:
    """Look for Java where Spark's launcher does, which names no package to install."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(f"{home}/bin/java", os.X_OK):
        raise JavaMissingError(f"JAVA_HOME is {home}, which has no bin/java")
    if not home and not shutil.which("java"):
        raise JavaMissingError("there is no java on PATH, and JAVA_HOME is not set")


def _why_not_started(log: IO[bytes], error: Exception) -> Exception:
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()
    why = f"{error}" + "".join(f"\n  {line}" for line in said[-8:])
    if any("UnsupportedClassVersionError" in line for line in said):
        return JavaMissingError(f"the java that was found is too old\n{why}")
    return JobFailedError(f"Spark did not start: {why}")
