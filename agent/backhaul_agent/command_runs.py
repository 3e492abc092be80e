"""Carrying a command out: by a configured executable, or by a local program that answers on NATS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import msgspec
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.apps import COMMANDS, OPEN_COMMANDS
from backhaul_agent.command_book import End
from backhaul_agent.command_rows import State

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.command_rows import CommandRow

GRACE_S = 2.0  # between SIGTERM and SIGKILL, and for output after the end
LOOK_S = 0.25
CHUNK_BYTES = 16 * 1024


async def run_executable(
    row: CommandRow, run: Sequence[str], *, timeout_s: float, result_bytes_max: int
) -> End:
    """Run a program, without a shell: parameters on its input, what it prints is the result.

    Its whole process group ends at the timeout, and when the caller cancels.
    """
    names = {"BACKHAUL_COMMAND_ID": row.id, "BACKHAUL_COMMAND_NAME": row.name}
    try:
        process = await asyncio.create_subprocess_exec(
            *run,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | names,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return End(State.FAILED, f"{run[0]} cannot be started: {error}")
    output = bytearray()
    talking = asyncio.gather(_feed(process, row.params), _read(process, output, result_bytes_max))
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError:
        await _end(process)
        return End(
            State.FAILED,
            f"killed after {timeout_s:g} s",
            _printed(output, process.returncode, result_bytes_max),
        )
    finally:
        await _end(process)
        await _hush(talking)
    printed = _printed(output, code, result_bytes_max)
    if code:
        return End(State.FAILED, f"exit status {code}", printed)
    return End(State.DONE, "", printed)


async def _feed(process: Process, params: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it need not read them
        process.stdin.write(params)
        await process.stdin.drain()
        process.stdin.close()


async def _read(process: Process, output: bytearray, bytes_max: int) -> None:
    """Read all, so that the program never waits for a reader, and keep the beginning."""
    assert process.stdout is not None
    while chunk := await process.stdout.read(CHUNK_BYTES):
        output += chunk[: bytes_max + 1 - len(output)]


async def _end(process: Process) -> None:
    """End a program that still runs, and all that it has started."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Who runs as another user, as by sudo, is not ours to end: that is no reason to end ourselves.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()


async def _hush(talking: asyncio.Future[Any]) -> None:
    """Wait for the last output; something it left running may hold the pipe open for ever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            await talking


def _printed(output: bytearray, code: int | None, bytes_max: int) -> bytes:
    text = output[:bytes_max].decode(errors="replace")
    found: dict[str, Any] = {"exit": code, "output": text}
    if len(output) > bytes_max:
        found["truncated"] = True
    return msgspec.json.encode(found)


class NotDeliveredError(Exception):
    """No program had the command: nobody answers for it, or the leaf server is away."""


async def ask_program(
    client: Client, row: CommandRow, *, timeout_s: float, result_bytes_max: int
) -> End:
    """Ask the local program that answers on ``cmd.<name>``.

    Raises:
        NotDeliveredError: nobody got it; asking again is safe.
    """
    body = {"id": row.id, "name": row.name, "deadline_ns": row.deadline_ns}
    payload = msgspec.json.encode(body | {"params": msgspec.Raw(row.params)})
    # The program that was given the command, before any that came without a key.
    for subject in (f"{COMMANDS}.{row.name}", f"{OPEN_COMMANDS}.{row.name}"):
        if client.is_closed:
            break
        try:
            asking = asyncio.ensure_future(client.request(subject, payload, timeout=timeout_s))
            answer = await _unless_closed(asking, lambda: client.is_closed)
        except NoRespondersError:
            continue
        except (NatsError, OSError) as error:
            why = str(error) or type(error).__name__
            return End(State.INTERRUPTED, f"its program did not answer ({why}); it may be done")
        if answer is None:
            return End(State.INTERRUPTED, "the leaf server went away meanwhile; it may be done")
        return _answered(answer.data, result_bytes_max)
    raise NotDeliveredError


async def _unless_closed(asking: asyncio.Future[Msg], closed: Callable[[], bool]) -> Msg | None:
    """Return the answer, None where the connection is closed first: then there will be none."""
    try:
        while not asking.done():
            await asyncio.wait([asking], timeout=LOOK_S)
            if closed() and not asking.done():
                return None
        return asking.result()
    finally:
        asking.cancel()


def _answered(data: bytes, bytes_max: int) -> End:
    """Take an answer: JSON; ``{"error": …}`` says that it failed, anything else is the result."""
    if len(data) > bytes_max:
        return End(State.DONE, f"its result had {len(data)} bytes, {bytes_max} are kept: none is")
    try:
        said = msgspec.json.decode(data or b"null")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return End(State.FAILED, "its program's answer is not JSON")
    if isinstance(said, dict) and said.keys() == {"error"}:
        error = said["error"]
        return End(State.FAILED, error if isinstance(error, str) else str(error))
    return End(State.DONE, "", msgspec.json.encode(said))
