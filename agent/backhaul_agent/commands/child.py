"""One process that a command started: its exit, and the beginning of what it prints.

asyncio's own `Process.wait` waits for the pipes as well, so a child that the process left behind would
keep it waiting. Here the exit counts, and nothing that the process prints goes anywhere but into memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import cast

from backhaul_agent.cancellation import heard

STDIN, STDOUT, STDERR = 0, 1, 2
GRACE_S = 2.0  # between SIGTERM and SIGKILL
LEFT_S = 0.5  # after the exit, for output that is on its way
# Beyond what is kept a process is read at most this often, a pipe's buffer (64 KiB) each time: one that
# prints without end must not take the agent's time.
PAUSE_S = 0.01


class Output:
    """What a process printed on one descriptor: the first ``bytes_max``, and how much there was."""

    def __init__(self, bytes_max: int) -> None:
        self.kept = bytearray()
        self.bytes = 0
        self._bytes_max = bytes_max

    @property
    def cut(self) -> bool:
        """Whether there was more than is kept."""
        return self.bytes > len(self.kept)

    def add(self, data: bytes) -> None:
        """Take in what was read."""
        self.bytes += len(data)
        self.kept += data[: self._bytes_max - len(self.kept)]

    def text(self) -> str:
        """Return what is kept, as text."""
        return self.kept.decode(errors="replace")


class Child(asyncio.SubprocessProtocol):
    """A process in a session of its own, so that all it starts can be ended with it."""

    def __init__(self, output_bytes_max: int, complaint_bytes_max: int) -> None:
        self.output = Output(output_bytes_max)
        self.complaint = Output(complaint_bytes_max)
        self._open = {STDOUT, STDERR}
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._silent = asyncio.Event()
        self._transport: asyncio.SubprocessTransport

    async def start(self, run: Sequence[str], stdin: bytes, env: Mapping[str, str]) -> None:
        """Start it, and hand it its input; it need not read that.

        Raises:
            OSError: the system does not start it.
            ValueError: an argument holds a NUL.
        """
        self._transport, _ = await self._loop.subprocess_exec(
            lambda: self, *run, env=env, start_new_session=True
        )
        feed = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(STDIN))
        feed.write(stdin)
        feed.close()

    async def wait(self) -> int:
        """Wait for the exit, and return its status: of a signal the negative number."""
        await self._exited.wait()
        assert self.code is not None
        return self.code

    @property
    def code(self) -> int | None:
        """The exit status; None while it runs."""
        return self._transport.get_returncode()

    async def rest(self) -> bool:
        """Take in what is on its way; return whether something still holds an output open."""
        await heard(self._silent, LEFT_S)
        return bool(self._open)

    async def end(self) -> None:
        """End the process, where it still runs, and all in its group."""
        if self._exited.is_set():
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._signal(number):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    while self._signal(0):  # noqa: ASYNC110 - nobody is told when a group is gone
                        await asyncio.sleep(PAUSE_S)

    def _signal(self, number: int) -> bool:
        """Send the whole group a signal (0: none); return whether any of it is left."""
        try:
            os.killpg(self._transport.get_pid(), number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # What runs as another user, as by sudo, is not ours to end: no reason to end ourselves.
            return not self._exited.is_set()
        return True

    def close(self) -> None:
        """Let go of its pipes: what still writes there is told by the system."""
        # asyncio would kill what still runs, and only that: where it may not, that raises.
        with contextlib.suppress(PermissionError):
            self._transport.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the beginning, and read on more slowly beyond it."""
        output = self.output if fd == STDOUT else self.complaint
        output.add(data)
        if output.cut:
            pipe = cast("asyncio.ReadTransport", self._transport.get_pipe_transport(fd))
            pipe.pause_reading()
            self._loop.call_later(PAUSE_S, pipe.resume_reading)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that nobody writes there any more."""
        self._open.discard(fd)
        if not self._open:
            self._silent.set()

    def process_exited(self) -> None:
        """Note the exit."""
        self._exited.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn of the transport before anything else is heard."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
