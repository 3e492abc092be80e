"""A NATS client for tests: it waits for an answer as long as a machine with other work may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nats.aio.client import Client

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

PATIENCE_S = 30.0


class PatientClient(Client):
    """nats-py's client, which by itself gives up on an answer after half a second."""

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = PATIENCE_S,  # noqa: ASYNC109 - nats-py's own
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Ask as `Client.request` does."""
        return await super().request(subject, payload, timeout, old_style, headers)

    def jetstream(self, **opts: Any) -> JetStreamContext:
        """Return a context that waits for the server as long."""
        return super().jetstream(**{"timeout": PATIENCE_S} | opts)
