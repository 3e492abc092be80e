"""How the hub's watermarks reach the lanes: `s.watermark.<lane>` in IN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from backhaul_agent.downlink import Inbound
    from backhaul_agent.lane import Lane
    from backhaul_agent.ledger_rows import Changes


class Watermark(msgspec.Struct, frozen=True):
    """What the hub says: of this epoch, it holds every seq up to here."""

    epoch: int
    seq: int


_decode = msgspec.json.Decoder(Watermark).decode


def read_watermark(data: bytes) -> Watermark:
    """Return what a message says.

    Raises:
        ValueError: it is no watermark.
    """
    try:
        watermark = _decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"no watermark: {error}") from error
    if watermark.seq < 0 or not 0 < watermark.epoch < 1 << 32:
        raise ValueError(f"no watermark: epoch {watermark.epoch}, seq {watermark.seq}")
    return watermark


class Watermarks:
    """Tells each lane what the hub holds of it."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = {lane.name: lane for lane in lanes}

    def on_message(self, message: Inbound, changes: Changes) -> None:
        """Take in a watermark. The writer stores it; the lane keeps what it claims in memory.

        Raises:
            ValueError: it is no watermark, or of no lane.
        """
        lane = self._lanes.get(message.tokens[-1])
        if lane is None or len(message.tokens) != 3:
            raise ValueError("a watermark of no lane")
        watermark = read_watermark(message.data)
        lane.on_watermark(watermark.epoch, watermark.seq)
