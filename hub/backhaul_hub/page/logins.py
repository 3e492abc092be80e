"""Passing on browsers' logins to the control plane, over NATS."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub import questions
from backhaul_hub.access.logins import PAGE
from backhaul_hub.device import FLEET
from backhaul_hub.errors import HubError
from backhaul_hub.people.ask_service import OF_ONE_MAX
from backhaul_hub.people.identity import May, Person

SERVER = Person(PAGE, FLEET, May.READ)
_WAIT_S = 10.0


@dataclass(eq=False)
class LoginGate:
    """Asks the control plane to log a browser in.

    Args:
        client: a connection with the login of who serves the page.
    """

    _client: Client
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OF_ONE_MAX))

    async def log_in(self, question: questions.PageLogin) -> bytes:
        """Return the control plane's answer as it came: a JWT, or an `error`.

        Raises:
            HubError: nobody answers.
        """
        async with self._room:
            try:
                message = await self._client.request(
                    SERVER.ask("login"), msgspec.json.encode(question), timeout=_WAIT_S
                )
            except NoRespondersError as error:
                raise HubError("the control plane does not run") from error
            except NatsError as error:
                raise HubError(f"the control plane does not answer: {error!r}") from error
        return message.data


def refusal(message: str, hint: str = "") -> dict[str, Any]:
    """Return a refusal as the control plane writes one."""
    return {"error": {"message": message, "hint": hint}}
