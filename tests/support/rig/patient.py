"""A NATS client for rigs and tests: it waits for as long as a machine with other work may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_runtime.patched_client import PatchedClient

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

PATIENCE_S = 30.0


class PatientClient(PatchedClient):
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

    async def flush(self, timeout: float = PATIENCE_S) -> None:  # noqa: ASYNC109
        """Wait as `Client.flush` does."""
        await super().flush(timeout)

    def jetstream(self, **opts: Any) -> JetStreamContext:
        """Return a context that waits for the server as long."""
        return super().jetstream(**{"timeout": PATIENCE_S} | opts)


async def connect(servers: str | list[str], **options: Any) -> PatientClient:
    """Connect as `nats.connect` does; the caller closes."""
    client = PatientClient()
    await client.connect(servers, **{"connect_timeout": PATIENCE_S} | options)
    return client
