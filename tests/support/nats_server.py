"""Real nats-servers for tests: started in a directory of their own, always stopped by their handle.

`NatsServer` runs one server on a free port that stays the same over restarts, so that programs find
it again. `nats_server` is a fixture with one JetStream server of domain VID-001.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backhaul_hub import shards
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_S_MAX = 120.0
DOMAIN = "VID-001"
MAPPINGS = f'mappings {{ "{shards.API}.>": "$JS.API.>" }}'
"""For what a hub has in an account of its own and a server without accounts in its only one."""


class ConfiguredServer:
    """One nats-server process. Not covered: power loss; a kill leaves the page cache whole.

    Args:
        directory: where it logs.
        config: its configuration.
        port: the clients' port that this names.
    """

    def __init__(self, directory: Path, config: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"
        self._log = directory / "server.log"
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        assert not self.running
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [server_binary(), "-c", str(self._config), "-l", str(self._log)],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + READY_S_MAX  # noqa: TID251 - a deadline on a real process
        while not self._greets():
            if not self.running or time.monotonic() > deadline:  # noqa: TID251
                self.stop()
                pytest.fail(f"nats-server did not start:\n{self.logged()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server in order; a second call does nothing."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def logged(self) -> str:
        """Return what the server has said so far."""
        return self._log.read_text()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(READY_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False


class NatsServer(ConfiguredServer):
    """A server with JetStream, on a free port, with a configuration of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        domain: str = DOMAIN,
        mappings: str = MAPPINGS,
        extra: str = "",
    ) -> None:
        super().__init__(directory, directory / "server.conf", free_port())
        self.store = directory / "store"
        directory.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f"host: 127.0.0.1\nport: {self.port}\nserver_name: {directory.name}\n"
            f'jetstream: {{ store_dir: "{self.store}", domain: {domain} }}\n{mappings}\n{extra}\n'
        )

    def wipe(self) -> None:
        """Remove the JetStream store of a stopped server."""
        assert not self.running
        shutil.rmtree(self.store, ignore_errors=True)


def server_binary() -> str:
    """Return the nats-server beside this Python, else the one on PATH, else skip."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if not found:
        pytest.skip("no nats-server: `make setup` installs one")
    return found


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A running JetStream server of domain VID-001, empty."""
    server = NatsServer(tmp_path / "leaf")
    server.start()
    try:
        yield server
    finally:
        server.stop()
