"""Carrying a command out: by a configured executable, or by a local program that answers on NATS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.apps.rights import COMMANDS, OPEN_COMMANDS
from backhaul_agent.commands.child import Child
from backhaul_agent.commands.decide import ended
from backhaul_agent.ledger.command_rows import CommandRow, RunOutcome, RunState
from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_codec.strict.json import JsonError, read_json, write_json

LOOK_S = 0.25
COMPLAINT_BYTES_MAX = 1024  # of what it prints on standard error: for the log


class Printed(NamedTuple):
    """What an executable printed beside its result.

    ``complaint``: the beginning of its standard error, ``complaint_bytes``: how much there was;
    ``cut``: it printed more than is kept; ``left_open``: something that it left running may print on.
    """

    complaint: str = ""
    complaint_bytes: int = 0
    cut: bool = False
    left_open: bool = False


async def run_executable(
    row: CommandRow, run: Sequence[str], *, timeout_s: float, result_bytes_max: int
) -> tuple[RunOutcome, Printed]:
    """Run a program, without a shell: parameters on its input, what it prints is the result.

    It is over when its process exits. Its whole process group ends at the timeout, and when the caller
    cancels. What it left running after its exit is not ended, but loses its output.
    """
    names = {"BACKHAUL_COMMAND_ID": row.id, "BACKHAUL_COMMAND_NAME": row.name}
    child = Child(result_bytes_max, COMPLAINT_BYTES_MAX)
    try:
        await child.start(run, row.params, os.environ | names)
    except (OSError, ValueError) as error:
        return ended(ErrorCode.CANNOT_START, program=run[0], why=error), Printed()
    try:
        outcome = await _seen_through(child, timeout_s)
        left_open = await child.rest()
    finally:
        await child.end()
        child.close()
    printed: dict[str, Any] = {"exit": child.code, "output": child.output.text()}
    if child.output.cut:
        printed["truncated"] = True
    if left_open:
        printed["output_left_open"] = True
    said = Printed(child.complaint.text(), child.complaint.bytes, child.output.cut, left_open)
    return outcome._replace(result=msgspec.json.encode(printed)), said


async def _seen_through(child: Child, timeout_s: float) -> RunOutcome:
    """Wait for the end, or make one."""
    try:
        async with asyncio.timeout(timeout_s):
            status = await child.wait()
    except TimeoutError:
        await child.end()
        return ended(ErrorCode.KILLED, seconds=timeout_s)
    return ended(ErrorCode.EXIT_STATUS, status=status) if status else RunOutcome(RunState.DONE)


class NotDeliveredError(Exception):
    """No program had the command: nobody answers for it, or the leaf server is away."""


async def ask_program(
    client: Client, row: CommandRow, *, timeout_s: float, result_bytes_max: int
) -> RunOutcome:
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
            return ended(ErrorCode.NO_ANSWER, why=why)
        if answer is None:
            return ended(ErrorCode.LEAF_AWAY)
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


def _answered(data: bytes, bytes_max: int) -> RunOutcome:
    """Take an answer: JSON; ``{"error": …}`` says that it failed, anything else is the result."""
    if len(data) > bytes_max:
        return ended(ErrorCode.RESULT_TOO_LARGE, bytes=len(data), bytes_max=bytes_max)
    try:
        said = read_json(data or b"null")
    except JsonError as error:
        why = "not JSON" if error.code in ("json", "deep") else f"no JSON to be passed on: {error}"
        return ended(ErrorCode.BAD_ANSWER, why=why)
    if isinstance(said, dict) and said.keys() == {"error"}:
        why = said["error"]
        return ended(ErrorCode.BY_PROGRAM, why=why if isinstance(why, str) else str(why))
    return RunOutcome(RunState.DONE, result=write_json(said))
