"""A root that cannot be written: one line that says why, and what mends it."""

from __future__ import annotations

import errno
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import JobFailedError, NothingFoundError, TablesBusyError
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.tables.storage import storage_error
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.spark_frames import frame, message_batch, stored, task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

__all__ = ["small_disk"]
MAIN = "import sys; from backhaul_spark.cli.main import main; main()"


def command(name: str, root: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", MAIN, name, "--table-root", str(root)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def told(said: subprocess.CompletedProcess[str]) -> str:
    """Return the one line of error."""
    assert said.returncode == 1
    [line] = said.stderr.splitlines()
    return line


def ingested(root: Path) -> None:
    ingest = Ingest(str(root), SYSTEM_CLOCK)
    part = message_batch("UP_00", stored([frame(1)]))
    ingest.commit("app", 0, [task(str(root), ingest.tables.next_ingest, part)])


def test_a_full_disk_and_a_read_only_one_are_named_in_one_line_with_what_mends_it(
    small_disk: Callable[[int], SmallDisk],
) -> None:
    disk = small_disk(1 << 20)
    root = disk.path / "tables"
    ingested(root)
    disk.fill()
    for name in ("completeness",):
        said = command(name, root)
        line = told(said)
        assert f"{root} cannot be written: No space left on device" in line
        assert "backhaul-spark maintain --table-root" in line
    disk.drain()
    subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
    for name in ("completeness", "maintain"):
        said = command(name, root)
        line = told(said)
        assert line.endswith(
            f"Read-only file system; mend it with: mount -o remount,rw {disk.path}"
        )


def test_each_cause_is_found_wherever_it_stands() -> None:
    for error in (
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(
            "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Permission denied (os error 13)"
        ),
        OSError('Error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }'),
        JobFailedError("task failed: [Errno 13] Error writing bytes to file"),
    ):
        assert "Permission denied; mend it with: chown -R" in str(storage_error(error, "/t"))
    hidden = JobFailedError("Generic LocalFileSystem error")
    hidden.__cause__ = OSError("No space left on device (os error 28)")
    assert "No space left on device" in str(storage_error(hidden, "/t"))
    assert storage_error(NothingFoundError("(os error 28)"), "/t") is None
    assert storage_error(ValueError("no number"), "/t") is None


def test_who_loses_a_race_is_told_of_the_own_command() -> None:
    lost = TablesBusyError("/t", "another rollup has committed meanwhile", "rollup")
    assert "backhaul-spark rollup" in lost.hint
    assert "ingest" not in lost.hint
    assert "ingest" in TablesBusyError("/t", "another ingest has taken over").hint
