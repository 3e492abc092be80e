"""Whether a control plane runs at a server, and having it stop."""

from __future__ import annotations

import asyncio
import contextlib

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub import questions
from backhaul_hub.backup.restore import require_stopped
from backhaul_hub.errors import BackupError, HubError

_STOP_S_MAX = 30.0
_LOOK_S = 0.025


async def answers(client: Client) -> bool:
    """Tell whether a control plane runs at a server."""
    try:
        await require_stopped(client)
    except BackupError:
        return True
    return False


async def _is_gone(client: Client) -> bool:
    """Tell whether a control plane has ended; while it ends, it is there and does not answer."""
    try:
        await require_stopped(client)
    except HubError:
        return False
    return True


async def stop(client: Client) -> None:
    """Have the control plane stop, where one runs, and wait until it has.

    Raises:
        HubError: it does not.
    """
    with contextlib.suppress(NatsError):  # nobody there, or gone before it could answer
        await client.request(questions.subject("stop"), b"", timeout=_STOP_S_MAX)
    try:
        async with asyncio.timeout(_STOP_S_MAX):
            while not await _is_gone(client):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise BackupError(
            "the control plane does not stop", hint="stop it: systemctl stop backhaul-hub.service"
        ) from None
