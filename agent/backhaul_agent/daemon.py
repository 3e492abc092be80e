"""The agent as a running process: its ledger, opened and locked, and the parts around it.

Start: lock the ledger (`ledger/lock.py`), open it, take staged rows back, connect (for ever), tell
systemd READY. The leaf server may come before or after the agent.

Stop, on SIGTERM or SIGINT: the parts stop in order (`parts.agent_parts`), then the ledger closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from backhaul_agent.config import Config
from backhaul_agent.errors import LedgerStorageError, alone_in, damage_in
from backhaul_agent.ledger.damage import set_aside
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.lock import LedgerLock
from backhaul_agent.ledger.schema import Opener, open_file
from backhaul_agent.parts.agent_parts import Parts
from backhaul_runtime.clock import SteadyClock

if TYPE_CHECKING:
    from backhaul_runtime.systemd_notify import Notifier

SET_ASIDE_MAX = 3  # ledgers in one run: a disk that damages one after the other is of no use
ROOM_LOOK_S = 1.0  # between two tries to open a ledger on a full disk
log = structlog.get_logger("daemon")


class Daemon:
    """Wires the parts together and runs them. `run` returns after `stop`."""

    def __init__(
        self,
        config: Config,
        *,
        clock: SteadyClock,
        random_u32: Callable[[], int],
        notifier: Notifier,
        opener: Opener = open_file,
        boot: str = "",
        credentials: Path | None = None,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._clock = clock
        self._random_u32 = random_u32
        self._notifier = notifier
        self._opener = opener
        # Without a name for this start of the machine, each start of the agent counts as one.
        self._boot = boot or f"process-{random_u32():08x}"
        self._stop = asyncio.Event()
        self.parts: Parts | None = None

    def stop(self) -> None:
        """Begin the shutdown; safe to call from a signal handler, and more than once."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop`; a ledger that is damaged is set aside, and a new one goes on.

        Raises:
            LedgerInUseError: another agent runs on this ledger; nothing was changed.
            LedgerError: the ledger cannot be used, and neither damage nor a full disk is why; or one after the other was
                damaged, or could not be set aside.
        """
        path = Path(self._config.ledger.path)
        with LedgerLock(path, Reserve(path, self._config.ledger.reserve_bytes)) as lock:
            await self._run(path, lock)

    async def _run(self, path: Path, lock: LedgerLock) -> None:
        damages: list[str] = []
        for left in range(SET_ASIDE_MAX, -1, -1):
            try:
                await self._live(path, lock, damages)
            except Exception as error:
                damage = damage_in(error)
                if not (damage and left):
                    if (told := alone_in(error)) is error:
                        raise
                    # A group of it would be told with a traceback, and without what to do.
                    raise told from told.__cause__
                damages.append(damage)
            else:
                return
            try:
                kept = set_aside(path)
            except OSError as error:
                raise LedgerStorageError(path, "setting aside", error) from error
            log.error("ledger_quarantined", damage=damage, kept=str(kept or ""))

    async def _live(self, path: Path, lock: LedgerLock, damages: Sequence[str]) -> None:
        """Run on one ledger; `damages` say why those before were set aside: nobody may have told it yet."""
        reserve = Reserve(path, self._config.ledger.reserve_bytes)
        lanes = Lanes(self._config.streams.nodes)
        ledger = await self._opened(path, reserve, lanes)
        try:
            self.parts = Parts(
                self._config, self._clock, ledger, lanes, self._notifier, self._boot,
                self._random_u32, self._credentials, on_look=lock.renew,
            )  # fmt: skip
            await self.parts.run(self._stop, damages)
        finally:
            self.parts = None
            await ledger.close()
            log.info("stopped")

    async def _opened(self, path: Path, reserve: Reserve, lanes: Lanes) -> Ledger:
        """Open the ledger; wait for room on its disk where the reserve is spent, too."""
        config, told = self._config.ledger, False
        while True:
            try:
                return await Ledger.open(
                    path,
                    device=self._config.device.id,
                    bytes_max=config.bytes_max,
                    when_full=config.when_full,
                    reserve=reserve,
                    epoch=self._random_u32,
                    opener=self._opener,
                    lanes=lanes.names,
                )
            except LedgerStorageError as error:
                if not error.disk_full or self._stop.is_set():
                    raise
                if not told:
                    log.warning("no_room_to_open_ledger", error=str(error), hint="make room")
                told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), ROOM_LOOK_S)
