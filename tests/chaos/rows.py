"""Messages for tests of the checker."""

from __future__ import annotations

from backhaul_agent.ledger.rows import Outgoing
from backhaul_codec import Point, encode_frame


def reading(number: int) -> Point:
    return Point("imu", "value", number, float(number))


def frame(number: int) -> Outgoing:
    return Outgoing("bulk", "f.imu", encode_frame([reading(number)], epoch=0, seq=0))
