"""Whether a program may have ended by itself, by the end of what it wrote. Pure.

The control plane alone may: at the start it does not wait for its server, or for room on its disk. Agents
and servers have no reason to end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROLS = {"hub control plane", "control plane a", "control plane b"}
_SAID = re.compile(
    r"^[\s|]*(backhaul-hub: .*|[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE
)
_NO_SERVER = re.compile(
    r"no connection to the hub's nats-server|no answer (to|in) |no JetStream behind |servers answer"
    r"|\(error 100(08|39|76)\)"  # no leader yet; no accounts yet; JetStream off
    r"|^nats\.errors\.(ConnectionClosed|NoResponders|NoServers|StaleConnection|Timeout"
    r"|ConnectionReconnecting|OutboundBufferLimit|UnexpectedEOF)"
    r"|^(Connection(Reset|Refused|Aborted)|BrokenPipe|Timeout)Error"
)
_NO_ROOM = re.compile(
    r"database or disk is full|disk I/O error|No space left on device|insufficient|\(error 100(47|49)\)"
)


def ended_wrongly(ended: Iterable[tuple[str, str]], *, hub_was_full: bool) -> list[str]:
    """Return which programs ended by themselves and should not have, each with its last words.

    `ended`: names, each with the end of its log.
    """
    return [
        f"{name} ended by itself: {last_words(log)}"
        for name, log in ended
        if name not in _CONTROLS or not _lawful(last_words(log), hub_was_full=hub_was_full)
    ]


def last_words(log: str) -> str:
    """Return the error that a log ends with: what comes after the last line of JSON; "" for none."""
    lines = log.splitlines()
    json_lines = [at for at, line in enumerate(lines) if line.startswith("{")]
    rest = lines[json_lines[-1] + 1 :] if json_lines else lines
    said: list[str] = _SAID.findall("\n".join(rest))
    return said[-1] if said else ""


def _lawful(said: str, *, hub_was_full: bool) -> bool:
    words = said.removeprefix("backhaul-hub: ")
    return bool(_NO_SERVER.search(words) or (hub_was_full and _NO_ROOM.search(words)))
