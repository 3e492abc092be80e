"""Until when the certificates last that the hub's servers show, and the authorities behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import Json
from backhaul_hub.nats.system_requests import ask_all
from backhaul_hub.tls.files import has_tls, trusted_authorities

_LOOK_S = 60.0
# What a server says about its client port stands at the top.
_PORTS = {"client": (), "leaf": ("leaf",), "cluster": ("cluster",)}
log = structlog.get_logger(__name__)


def shown(answers: Iterable[Json]) -> dict[str, datetime]:
    """Return until when each certificate lasts that servers show, by server and port.

    ``nats.replies``: of servers to VARZ. They say what they have loaded, which may be older than the files.
    """
    found = {}
    for answer in answers:
        for port, path in _PORTS.items():
            said = answer.get("data") or {}
            for key in path:
                said = said.get(key) or {}
            if until := said.get("tls_cert_not_after"):
                name = f"{answer['server']['name']}, {port} port"
                found[name] = datetime.fromisoformat(until)
    return found


class CertificateWatch:
    """Asks now and then.

    Args:
        directory: the hub directory, with the authorities that are trusted.
        servers: how many there are.
    """

    def __init__(self, directory: Path, system: Client, servers: int) -> None:
        self.until: dict[str, datetime] = {}
        """By what it belongs to, as was seen last."""
        self._directory = directory
        self._system = system
        self._servers = servers

    async def run(self) -> None:
        """Look once a minute (event loop's clock), for ever."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Look once; a certificate that cannot be read just now stays as it was."""
        try:
            seen = shown(await ask_all(self._system, "VARZ", self._servers))
            if has_tls(self._directory):
                for each in trusted_authorities(self._directory):
                    seen[each.subject.rfc4514_string()] = each.not_valid_after_utc
        except (HubError, NatsError, OSError) as error:
            log.debug("certificates_unknown", error=str(error))
            return
        self.until.clear()
        self.until.update(seen)
