"""Tell systemd how it goes: one datagram to $NOTIFY_SOCKET (see sd_notify(3))."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping


class Notifier:
    """Sends READY, WATCHDOG, STATUS and STOPPING; does nothing where systemd is not the parent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ is systemd's way to write an abstract socket.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if usec.isdecimal() else 0.0

    def send(self, message: str) -> None:
        """Send e.g. ``READY=1``; a full or missing socket is no reason to stop."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(message.encode(), self._address)
        except OSError:
            return

    async def watchdog(self, alive: Callable[[], bool]) -> None:
        """Report life at half the watchdog interval while ``alive`` says so."""
        while self.watchdog_s:
            if alive():
                self.send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)
