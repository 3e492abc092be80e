"""A log that cannot be written ends nothing."""

from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.logs import configure
from backhaul_codec.programs.json_logs import Forgiving

if TYPE_CHECKING:
    import pytest


class FullDisk(io.StringIO):
    """Takes nothing while it is full."""

    full = True

    def write(self, text: str) -> int:
        self._refuse()
        return super().write(text)

    def flush(self) -> None:
        self._refuse()

    def _refuse(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_that_the_disk_does_not_take_is_left_out_and_later_ones_are_written() -> None:
    disk = FullDisk()
    log = Forgiving(disk)
    assert log.write("lost\n") == 5
    log.flush()
    disk.full = False
    log.write("kept\n")
    log.flush()
    assert disk.getvalue() == "kept\n"


def test_the_agent_logs_to_one_that_forgives(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk()
    monkeypatch.setattr(sys, "stderr", disk)
    before = structlog.get_config()
    try:
        configure("info")
        structlog.get_logger().info("lost")
        disk.full = False
        structlog.get_logger().info("kept")
    finally:
        structlog.configure(**before)
    assert '"event": "kept"' in disk.getvalue()
    assert "lost" not in disk.getvalue()
