"""Reading the twin job's alerts from TWIN_EVENTS, by a position in hub.db: each counts once, whenever the hub was away."""

from __future__ import annotations

from dataclasses import dataclass

from nats.aio.client import Client

from backhaul_hub.alerts.alert import AlertWord, word_of_alert
from backhaul_hub.alerts.rows import Position
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.streams.twin_streams import EVENTS
from backhaul_hub.twin.event_log import ALERT, read_alert
from backhaul_runtime.clock import Clock

BATCH = 512
LOOK_S = 30.0
"""Seconds between two looks at whether the stream is still the same."""


@dataclass(eq=False)
class AlertReader:
    """Reads on from a position; from the stream's beginning where it has none, or the stream is another one.

    Args:
        position: how far an earlier control plane has read; None: none has.
    """

    client: Client
    api: JetStreamApi
    clock: Clock
    env: str
    position: Position | None

    def __post_init__(self) -> None:
        self._reader = StoredReader(self.client, EVENTS)
        self._subject = f"fleet.{self.env}.veh.*.evt.{ALERT}.>"
        self._looked_s: float | None = None

    async def read(self) -> tuple[list[AlertWord], Position | None]:
        """Return the next words, and the position behind them: hub.db gets both at once, or neither.

        The position is None where nothing was read; it is the same as before only where all is read.

        Raises:
            HubError: the server did not answer.
            NatsError: likewise.
        """
        position = await self._place()
        if position is None:
            return [], None
        found = await self._reader.read(position.seq + 1, BATCH, subject=self._subject)
        if not found:
            return [], None
        words = []
        for each in found:
            alert = read_alert(each.subject, each.body)
            word = word_of_alert(alert) if alert is not None else None
            if word is not None:
                words.append(word)
        return words, Position(position.created, found[-1].seq)

    async def _place(self) -> Position | None:
        """Return where to read on, None while there is no stream; looks now and then whether it was made anew."""
        now_s = self.clock.monotonic_s()
        known = self.position
        if known is not None and self._looked_s is not None and now_s - self._looked_s < LOOK_S:
            return known
        info = await self.api.stream_info(EVENTS)
        if info is None:
            return None
        self._looked_s = now_s
        created = str(info["created"])
        if known is None or known.created != created:
            self.position = known = Position(created, 0)
        return known
