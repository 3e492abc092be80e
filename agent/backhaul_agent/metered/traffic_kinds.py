"""The kinds of a link's bytes: by the subjects of the messages, and by differences of a counter. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backhaul_agent.ledger.eviction_policy import ACCOUNT, EVENT, TELEMETRY, class_of
from backhaul_codec.kinds import SYSTEM, SYSTEM_KINDS
from backhaul_codec.protocol.vehicle_report import LINK_KINDS
from backhaul_codec.subjects import shared_subject

HOUSEKEEPING = "housekeeping"
TELEMETRY_KIND = "telemetry"
KINDS = LINK_KINDS
"""``state``: state and configuration. ``events``: programs' events, and results of commands. ``system``:
receipts, marks, digests, dictionaries. ``housekeeping``: all that no message of a lane accounts for:
acknowledgements, heartbeats, resends, files, and everything that the hub sends."""


def kind_of(subject: str) -> str:
    """Return the kind of a message by its leaf subject."""
    prefix, *rest = shared_subject(subject).split(".")
    worth = class_of(subject)
    if worth == TELEMETRY:
        return TELEMETRY_KIND
    if worth == ACCOUNT or (prefix == SYSTEM.prefix and rest and rest[0] in SYSTEM_KINDS):
        return "system"
    return "events" if worth == EVENT else "state"


@dataclass(slots=True)
class Meter:
    """Turns a counter that begins anew now and then into differences.

    ``source``: who counts; another one begins anew. The bytes counted while nobody looked are found at
    the next look, where the source is still the same.
    """

    source: str = ""
    sent: int = 0
    received: int = 0

    def read(self, source: str, sent: int, received: int) -> tuple[int, int]:
        """Return the bytes sent and received since the last reading; the first one of all finds none."""
        known = self.source
        again = source != known or sent < self.sent or received < self.received
        base = (0, 0) if again else (self.sent, self.received)
        self.source, self.sent, self.received = source, sent, received
        return (sent - base[0], received - base[1]) if known else (0, 0)

    def kept(self) -> list[Any]:
        """Return it as JSON's values, for `Meter(*kept)`."""
        return [self.source, self.sent, self.received]
