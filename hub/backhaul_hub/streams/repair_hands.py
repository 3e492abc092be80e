"""The hands of a repair: systemd on the server's own machine, or a person who reads each step."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from backhaul_hub.errors import HubError
from backhaul_hub.private_files import private_directory, sync_directory
from backhaul_runtime.clock import Clock

_OR = "without systemd, or on another machine: --by-hand"


class BySystemd:
    """Acts on this machine.

    Args:
        unit: the server's.
        name: the server's.
        store: where it keeps its streams; hub.conf lies beside it.
        clock: names the former store.
        tell: is given its place.
    """

    def __init__(
        self, unit: str, name: str, store: Path, clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._unit = unit
        self._conf = store.with_name("hub.conf")
        self._name = name
        self._store = store
        self._clock = clock
        self._tell = tell

    async def stop(self) -> None:
        """Stop the unit. Raises: HubError: it is another server's."""
        # Another server's machine has its unit under the same name.
        started = await self._systemctl("show", "--property=ExecStart", "--value")
        if str(self._conf.absolute()) not in started:
            raise HubError(
                f"{self._unit} on this machine does not start {self._conf.absolute()}",
                hint=f"run it on {self._name}'s machine, or with --by-hand",
            )
        await self._systemctl("stop")

    async def put_away(self, accounts: Sequence[str]) -> None:
        """Move the store aside, and make the accounts' directories anew. Raises: OSError."""
        stamp = self._clock.now_ns() // 1_000_000_000
        # The folder within: the store itself may be a file system of its own.
        inner, aside = self._store / "jetstream", self._store / f"damaged-{stamp}"
        if inner.exists():
            inner.rename(aside)
            self._tell(f"its former store is {aside}")
        owner = self._conf.stat()
        for path in (
            *(self._store, inner),
            *(inner / each / part for each in accounts for part in ("", "streams")),
        ):
            private_directory(path)
            os.chown(path, owner.st_uid, owner.st_gid)
        sync_directory(self._store)

    async def start(self) -> None:
        """Start the unit. Raises: HubError."""
        await self._systemctl("start")

    async def _systemctl(self, *words: str) -> str:
        command = ["systemctl", *words, self._unit]
        try:
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise HubError(f"systemctl: {error}", hint=_OR) from error
        if done.returncode:
            raise HubError(f"{' '.join(command)}: {done.stderr.strip()}", hint=_OR)
        return done.stdout


class ByHand:
    """Says each step; `ServerRepair` sees when it is done.

    Args:
        name: the server's.
        store: where it keeps its streams, on its machine.
        tell: is given each line.
    """

    def __init__(self, name: str, store: Path, tell: Callable[[str], None]) -> None:
        self._name = name
        self._store = store
        self._tell = tell

    async def stop(self) -> None:
        """Say so."""
        self._tell(f"now: stop server {self._name}")

    async def put_away(self, accounts: Sequence[str]) -> None:
        """Say the commands."""
        inner = self._store / "jetstream"
        self._tell(f"now, on the machine of {self._name}, as the user that the server runs as:")
        self._tell(f"mv {inner} {self._store / 'damaged'}")
        self._tell(f"mkdir -p {' '.join(str(inner / each / 'streams') for each in accounts)}")

    async def start(self) -> None:
        """Say so."""
        self._tell(f"then: start server {self._name}")
