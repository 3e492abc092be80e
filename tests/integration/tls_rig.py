"""A hub with TLS of its own."""

from __future__ import annotations

import ssl
from typing import Any

from tests.support.rig.parts import HubRig


class TlsRig(HubRig):
    """A hub whose ports speak TLS, though they are on loopback."""

    async def init(self, *words: str) -> None:
        """Write the hub directory; certificates are for loopback as well."""
        await super().init("--tls-name", "hub.example.org", *words)

    def addresses(self) -> list[str]:
        """Return where it is, over TLS."""
        return [url.replace("nats://", "tls://") for url in super().addresses()]

    def options(self, user: str = "control") -> dict[str, Any]:
        """Return the arguments for nats-py's `connect`, with whom to believe."""
        trusted = ssl.create_default_context(cafile=str(self.directory / "tls" / "ca.pem"))
        return super().options(user) | {"tls": trusted}
