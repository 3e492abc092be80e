"""Which lane of which epoch: the key of everything that the hub knows of messages. Pure."""

from __future__ import annotations

from typing import NamedTuple


class LaneKey(NamedTuple):
    """One lane of one device in one incarnation of its ledger."""

    device: str
    lane: str
    epoch: int
