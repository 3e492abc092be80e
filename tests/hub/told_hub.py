"""A hub that tells vehicles how far it holds their lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.uplink.notify import WatermarkNotifier
from tests.support.hub_sync import FakeClock

if TYPE_CHECKING:
    from backhaul_hub.continuity.former_epochs import Place
    from backhaul_hub.uplink.standing_requests import StandingRequest

KEY = LaneKey("VID-001", "bulk", 7)


class OneByOne(JetStreamApi):
    """Stands for DOWN: `hear` takes each message, or raises what the server would answer."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Json:
        self.hear(subject, payload)
        return {}

    def hear(self, subject: str, body: bytes) -> None:
        raise NotImplementedError


class Hub:
    """A notifier whose readers have read all there is, or not."""

    def __init__(self, *seqs: int) -> None:
        self.settled = True
        self.requests: dict[Place, StandingRequest] = {}
        """What stands in DOWN of an earlier control plane."""
        self.continuity = Continuity()
        for seq in seqs:
            self.continuity.arrived(KEY, seq, 10, 1)
        self.notifier = WatermarkNotifier(
            None,  # type: ignore[arg-type]
            self.continuity,
            FakeClock(),
            devices=lambda: ["VID-001"],
            links={},
            lags={},
            settled=lambda: self.settled,
            answerer=lambda device: None,
            standing=self.stands,
        )

    async def stands(self) -> dict[Place, StandingRequest]:
        return self.requests

    def tell(self) -> dict[LaneKey, int]:
        told = self.notifier._untold()
        self.notifier._told |= told
        return {key: watermark.seq for key, watermark in told.items()}
