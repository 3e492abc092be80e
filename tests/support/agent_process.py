"""The agent as a real process, for tests that kill it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

READY_S_MAX = 120.0


class AgentProcess:
    """`backhaul-agent run` with a configuration and a ledger in ``directory``; `program`: if not this tree's."""

    def __init__(
        self,
        directory: Path,
        url: str,
        *,
        extra: str = "",
        device: str = "VID-001",
        program: Sequence[str] = (sys.executable, "-m", "backhaul_agent"),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.url = url
        self.ledger = directory / "ledger.db"
        self.config = directory / "agent.toml"
        self.log = directory / "agent.log"
        self.config.write_text(
            f'[device]\nid = "{device}"\ntoken = "tok1"\n[nats]\nurl = "{url}"\n'
            f'[ledger]\npath = "ledger.db"\n{extra}\n'
        )
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def ended(self, within_s: float = 1.0) -> int | None:
        """Return its exit code if it ends within a moment, else None."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self._process.wait, within_s)
        return None

    def start(self, environ: dict[str, str] | None = None) -> None:
        command = [*self._program, "run", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | (environ or {})
            )

    def kill(self) -> None:
        """End the process as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the process in order and return its exit code; a second call does nothing."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the process to end by itself and return its exit code."""
        assert self._process is not None
        code = self._process.wait(READY_S_MAX)
        self._process = None
        return code

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(READY_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"the agent did not stop:\n{self.log.read_text()[-3000:]}")

    async def status(self) -> dict[str, Any]:
        async with connect(self.url, wait_s=10.0) as agent:
            return await agent.status()

    async def wait_for(
        self, wanted: Callable[[dict[str, Any]], bool], *, limit_s: float = READY_S_MAX
    ) -> dict[str, Any]:
        """Return the first status for which ``wanted`` holds; fail after the deadline."""
        deadline = time.monotonic() + limit_s  # noqa: TID251 - a deadline on a real process
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:  # noqa: TID251
            try:
                status = await self.status()
                if wanted(status):
                    return status
            except AgentError:
                pass
            await asyncio.sleep(0.05)
        pytest.fail(f"not in {limit_s} s; status {status}\n{self.log.read_text()[-3000:]}")

    async def ready(self) -> None:
        await self.wait_for(lambda status: all(map(running, status["lanes"].values())))

    async def drained(self, *, limit_s: float = READY_S_MAX) -> dict[str, Any]:
        """Wait until everything acknowledged is framed and in the OUT streams."""
        return await self.wait_for(
            lambda status: (
                status["ledger"]["staged_points"] == 0
                and all(map(running, status["lanes"].values()))
                and all(lane["appended"] == lane["last_seq"] for lane in status["lanes"].values())
            ),
            limit_s=limit_s,
        )


def running(lane: dict[str, Any]) -> bool:
    return bool(lane["state"] == "running")
