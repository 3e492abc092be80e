"""Having the leaf server dial anew where the link is half-open: the shell around `half_open.HalfOpen`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from backhaul_agent.errors import LeafReloadError, LoginError
from backhaul_agent.leaf.half_open import HalfOpen, HalfOpenStep
from backhaul_agent.leaf.login import login_options
from backhaul_agent.leaf.reload import drop_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.config import Config
    from backhaul_agent.leaf.link_state import LinkTraffic, UplinkState

log = structlog.get_logger("leaf")


class LinkWatch:
    """Watches the link's counts; lives as long as the daemon.

    Args:
        ask: has the hub asked something that it answers at once.
        half_open: decides.
    """

    def __init__(
        self,
        config: Config,
        uplink: UplinkState,
        ask: Callable[[], None],
        half_open: HalfOpen | None = None,
    ) -> None:
        link = config.link
        self._url = config.nats.url
        # On a metered link a visit ends by itself where nothing moves.
        self._key = link.redial_nkey if link.mode == "always" else ""
        self._half_open = half_open or HalfOpen()
        self._uplink = uplink
        self._ask = ask
        self._due = asyncio.Event()
        if self._key:
            uplink.on_look.append(self._on_look)
            uplink.on_traffic.append(self._on_traffic)

    def status(self) -> dict[str, Any]:
        """Return the part of ``agent.status`` about the link."""
        return {"half_open": self._half_open.cuts}

    async def run(self) -> None:
        """Have the server dial whenever it is due; for ever."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                links = await drop_link(self._url, login_options(nkey=self._key))
            except (LeafReloadError, LoginError) as error:
                log.warning("half_open_link_stays", error=str(error))
            else:
                log.warning("half_open_link_dropped", links=links)

    def _on_look(self, up: bool | None) -> None:
        if not up:
            self._half_open.begin_anew()

    def _on_traffic(self, traffic: LinkTraffic) -> None:
        if not self._uplink.up:
            return
        step = self._half_open.look(traffic)
        if step is HalfOpenStep.ASK:
            self._ask()
        elif step is HalfOpenStep.CUT:
            self._due.set()
