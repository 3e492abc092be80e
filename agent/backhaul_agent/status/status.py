"""The answer to ``agent.status``: everything an operator or a test asks a running agent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import nats.micro
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.micro.request import Request

from backhaul_agent.apps.doors import ASKED, Heard, hear_at_doors
from backhaul_agent.cancellation import cancels, heed_cancel

Report = tuple[str, Callable[[], dict[str, Any]]]
"""A section of the status, and a part that has something to report in it; "": at the top."""

STATUS_SUBJECT = "agent.status"


def status(reports: Iterable[Report]) -> dict[str, Any]:
    """Return the agent's state as JSON-ready values; sizes in bytes, times in seconds.

    Sections stand in the order of their first reports. Several parts may report in one section.
    """
    found: dict[str, Any] = {}
    for section, report in reports:
        place = found.setdefault(section, {}) if section else found
        place |= report()
    return found


def memory_bytes_max() -> int:
    """Return the most memory this process has had resident; 0 where /proc does not say.

    Not `ru_maxrss`: that is inherited over fork and exec, so it speaks of whoever started us.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(kilobytes) * 1024


SERVICE = "backhaul-agent"


async def serve(client: Client, device: str, status: Callable[[], dict[str, Any]]) -> None:
    """Answer for as long as the connection lives. Raises: NatsError where it is gone."""

    async def answer(request: Request) -> None:
        body = msgspec.json.encode(status())
        with contextlib.suppress(NatsError, ValueError):  # ValueError: nobody wants an answer
            await request.respond(body)

    before = cancels()
    service = await nats.micro.add_service(
        client,
        name=SERVICE,
        version=version("backhaul"),
        description="Sync agent of this vehicle",
        metadata={"device": device},
    )
    await service.add_endpoint(name="status", subject=STATUS_SUBJECT, handler=answer)
    heed_cancel(before)

    async def at_door(message: Msg) -> None:
        if message.reply:
            with contextlib.suppress(NatsError):
                await client.publish(message.reply, msgspec.json.encode(status()))

    await hear_at_doors(client, Heard(STATUS_SUBJECT, at_door, ASKED))
