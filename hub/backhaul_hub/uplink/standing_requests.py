"""The requests for missing messages that stand in DOWN, those of earlier control planes too: vehicles still read them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from backhaul_codec.strict.json import JsonError, Reader
from backhaul_hub.continuity.former_epochs import Place
from backhaul_hub.nats.stream_reader import StoredReader

_BATCH = 512
_SUBJECTS = "in.*.s.resend.*"


class StandingRequest(NamedTuple):
    """The newest request for messages of one lane; no ranges: nothing is asked for any more."""

    epoch: int
    ranges: tuple[tuple[int, int], ...]
    machine: str | None
    """Which machine may declare lost what its ledger does not know; None: whichever reads it."""


class _Words(msgspec.Struct):
    epoch: int
    ranges: list[tuple[int, int]]
    machine: str | None = None


_read = Reader(_Words).read


async def standing_requests(down: StoredReader) -> dict[Place, StandingRequest]:
    """Return the requests that still ask for something, by device and lane.

    Raises:
        HubError: the server does not answer.
        NatsError: likewise.
    """
    found: dict[Place, StandingRequest] = {}
    seq = 1
    while messages := await down.read(seq, _BATCH, subject=_SUBJECTS):
        for each in messages:
            _, device, _, _, lane = each.subject.split(".")
            try:
                words = _read(each.body)
            except JsonError:
                continue  # no vehicle can read it either
            if words.ranges:
                found[device, lane] = StandingRequest(
                    words.epoch, tuple(words.ranges), words.machine
                )
        seq = messages[-1].seq + 1
    return found
