"""Where a query keeps its checkpoint, and how. Driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "file://"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# Spark's default for local files starts `readlink` sixteen times a batch (ADR 29).
_BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def checkpoint_uri(root: str, job: str) -> str:
    """Return where a job on tables under a root keeps its checkpoint: beside them.

    With a scheme in any case: a cluster may take a bare path for one of its HDFS.
    """
    return f"{with_scheme(root).rstrip('/')}/_checkpoints/{job}"


def with_scheme(place: str) -> str:
    """Return the URI of a directory, or the URI that it is."""
    return place if "://" in place else f"{FILE}{Path(place).absolute()}"


def prepare_checkpoint(spark: SparkSession, uri: str) -> None:
    """Choose how Spark writes the checkpoint of a query that is about to start.

    In files of this machine, by this JVM alone: without a process or a checksum (.crc) for each. Hadoop
    renames a file and its checksum one after the other, and a kill between the two would leave a file
    that nobody can read. Everywhere else as Spark and the cluster's settings have it.
    """
    master = spark.sparkContext.master or ""
    if not uri.startswith(FILE) or not (master == "local" or master.startswith("local[")):
        spark.conf.unset(_MANAGER)
        return
    spark.conf.set(_MANAGER, _BY_FILE_SYSTEM)
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration())
    files.setWriteChecksum(False)
