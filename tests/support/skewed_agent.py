"""`backhaul-agent run` on a machine whose wall clock is wrong: by what a file says, whenever it is asked.

Run as a program: skewed_agent.py CONFIG OFFSET_FILE [ROOT]. The file holds seconds; written again while the
agent runs, the wall clock jumps. ROOT: of the files that say which machine this is, such as etc/machine-id.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from functools import partial
from pathlib import Path

from backhaul_agent import logs
from backhaul_agent.config_file import load
from backhaul_agent.daemon import Daemon
from backhaul_agent.enrol.vehicle_files import DEVICE_CREDS
from backhaul_agent.parts import core
from backhaul_agent.presence.machine import identify
from backhaul_agent.time_sync import correct_stamps as settle
from backhaul_runtime.clock import SystemClock, boot_id
from backhaul_runtime.systemd_notify import Notifier


class SkewedClock(SystemClock):
    """The machine's clocks, the wall clock off by what a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset_ns = 0

    def now_ns(self) -> int:
        if text := self._file.read_text():  # empty for a moment while it is being written
            self._offset_ns = int(float(text) * 1e9)
        return super().now_ns() + self._offset_ns


# Many transactions, so that there is a middle to be killed in.
settle.SETTLE_ROWS = 16


async def run(config_path: Path, file: Path) -> None:
    config = load(config_path)
    logs.configure(config.log.level)
    daemon = Daemon(
        config,
        clock=SkewedClock(file),
        random_u32=lambda: secrets.randbits(32),
        notifier=Notifier({}),
        boot=boot_id(),
        credentials=config_path.with_name(DEVICE_CREDS),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.stop)
    await daemon.run()


if __name__ == "__main__":
    config_path, offset, *roots = map(Path, sys.argv[1:])
    if roots:
        if vars(core).get("identify") is not identify:
            raise RuntimeError("the agent asks elsewhere which machine it is")
        core.identify = partial(identify, root=roots[0])  # type: ignore[attr-defined]
    asyncio.run(run(config_path, offset))
