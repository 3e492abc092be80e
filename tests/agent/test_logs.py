"""A log that cannot be written ends nothing."""

from __future__ import annotations

import errno
import io

from backhaul_agent.logs import Forgiving


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
