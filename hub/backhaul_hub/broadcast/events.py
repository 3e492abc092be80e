"""Telling events, commands, documents of shadows, and alerts along the tree. Pure.

On `up.<ancestor>.<device>.$.event.<kind>`, `….$.command.<id>`, `….$.shadow.<part>` and `….$.alert.<id>`. They have a token
more than points, which `up.<ancestor>.*.*.*` hears alone (broadcast/points.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from backhaul_codec import CodecError, decode
from backhaul_codec.kinds import REPORT
from backhaul_codec.subjects import encode_token
from backhaul_hub.alerts.alert import AlertRecord
from backhaul_hub.broadcast.points import WAITING_MAX, Told
from backhaul_hub.commands.command import Command
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.db.change import RowChange
from backhaul_hub.device import FLEET
from backhaul_hub.shadow.bucket import Revision
from backhaul_hub.twin.event_log import VehicleEvent, event_of

EVENT, COMMAND, SHADOW, ALERT = "$.event", "$.command", "$.shadow", "$.alert"
_encode = msgspec.json.Encoder().encode


def told_event(event: VehicleEvent, ancestors: Iterable[str]) -> Told:
    """Return the messages for an event; `ancestors` are subject tokens, as in all of these."""
    return _told(event.device, EVENT, event.kind, event.to_json(), ancestors)


def told_command(command: Command, ancestors: Iterable[str]) -> Told:
    """Return the messages for a command that has changed."""
    return _told(command.device, COMMAND, command.id, command.told(), ancestors)


def told_document(device: str, part: str, revision: Revision, ancestors: Iterable[str]) -> Told:
    """Return the messages for a revision of a document of a shadow."""
    said = {"device": device, "part": part, **revision._asdict()}
    return _told(device, SHADOW, part, said, ancestors)


def told_alert(alert: AlertRecord, ancestors: Iterable[str]) -> Told:
    """Return the messages for an alert that is new, changed or over; one of no vehicle is the fleet's."""
    return _told(alert.key.device or FLEET, ALERT, alert.id, alert.to_json(), ancestors)


def _told(
    device: str, what: str, name: str, said: dict[str, Any], ancestors: Iterable[str]
) -> Told:
    rest = f"{encode_token(device)}.{what}.{encode_token(name)}"
    return Told(tuple(f"up.{ancestor}.{rest}" for ancestor in ancestors), _encode(said))


@dataclass(eq=False)
class LiveEvents:
    """Takes part in the reading of UP, and has each new event told once it is stored.

    Args:
        tell: takes in what is to be told.
        ancestors: returns the subject tokens of a device and all above it.
    """

    _tell: Callable[[Iterable[Told]], None]
    _ancestors: Callable[[str], Iterable[str]]

    def __post_init__(self) -> None:
        self._waiting: deque[VehicleEvent] = deque(maxlen=WAITING_MAX)

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in one message; a repeated one is no news."""
        uplink = said.uplink
        if uplink.kind is not REPORT or uplink.type is None or not is_new:
            return
        try:
            event = event_of(said.key.device, uplink.type, decode(said.body))
        except CodecError:  # checked before; a body does not change
            return
        if event is not None:
            self._waiting.append(event)

    def take_changes(self) -> Sequence[RowChange]:
        """Return nothing: events are stored in TWIN_EVENTS."""
        return []

    def stored(self) -> None:
        """Tell the events of this turn."""
        waiting, self._waiting = list(self._waiting), deque(maxlen=WAITING_MAX)
        self._tell(told_event(each, self._ancestors(each.device)) for each in waiting)
