"""Where checkpoints are, and which of them Spark writes in its own way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backhaul_spark.checkpoint import checkpoint_uri, prepare_checkpoint

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


class Session:
    """A session of Spark with a setting that an earlier query has left; its Java says no word."""

    def __init__(self, master: str) -> None:
        self.settings = {MANAGER: "left"}
        self.conf = SimpleNamespace(
            set=self.settings.__setitem__, unset=lambda key: self.settings.pop(key, None)
        )
        self.checksums = True
        files = SimpleNamespace(setWriteChecksum=self._write_checksum)
        hadoop = SimpleNamespace(
            fs=SimpleNamespace(FileSystem=SimpleNamespace(getLocal=lambda _: files))
        )
        self.sparkContext = SimpleNamespace(
            master=master,
            _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))),
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
        )

    def _write_checksum(self, wanted: bool) -> None:
        self.checksums = wanted


@pytest.mark.parametrize(
    ("master", "root"),
    [
        ("local[2]", "s3a://lake/tables"),
        ("local-cluster[1,1,1024]", "/tables"),
        ("yarn", "/tables"),
    ],
)
def test_a_cluster_and_an_object_store_have_it_their_own_way(master: str, root: str) -> None:
    session: Any = Session(master)
    prepare_checkpoint(session, checkpoint_uri(root, "twin"))
    assert (session.settings, session.checksums) == ({}, True)


@pytest.mark.parametrize("master", ["local", "local[2,3]"])
def test_files_of_this_machine_are_written_without_processes_and_checksums(master: str) -> None:
    session: Any = Session(master)
    prepare_checkpoint(session, checkpoint_uri("/tables", "twin"))
    assert session.settings[MANAGER].endswith(".FileSystemBasedCheckpointFileManager")
    assert not session.checksums


def test_a_bare_path_becomes_a_uri() -> None:
    assert checkpoint_uri("/tables/", "twin") == "file:///tables/_checkpoints/twin"
    assert checkpoint_uri("s3://lake", "ingest") == "s3://lake/_checkpoints/ingest"
