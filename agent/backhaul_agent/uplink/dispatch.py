"""How the hub's watermarks reach the lanes: `s.watermark.<lane>` in IN, and `s.held.<lane>` of former epochs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from backhaul_agent.uplink.confirmations import Claim
from backhaul_agent.uplink.resend import read_ask
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_codec.wire.envelope import HASH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_agent.ledger.rows import Inbound, LedgerChanges
    from backhaul_agent.uplink.lane import Lane


Epoch = Annotated[int, Meta(ge=1, lt=1 << 32)]
Seq = Annotated[int, Meta(ge=0, lt=1 << 62)]


class WatermarkWord(msgspec.Struct, frozen=True):
    """The hub's word: of this epoch, it holds every seq up to here.

    ``hash``: of the message there, in hex, empty where the hub does not know it. ``fork``: see `Claim`.
    """

    epoch: int
    seq: int
    hash: str = ""
    fork: int = 0

    @property
    def claim(self) -> Claim:
        """Return its claim of its epoch."""
        return Claim(self.seq, bytes.fromhex(self.hash) or None, self.fork)


class HeldEpochs(msgspec.Struct, frozen=True):
    """The hub's word: of these former epochs, it holds every seq up to here: seq, hash, fork."""

    epochs: dict[Epoch, tuple[Seq, str, int]]


_read = Reader(WatermarkWord).read
_read_held = Reader(HeldEpochs).read
_HASH = re.compile(rf"([0-9a-f]{{{2 * HASH_BYTES}}})?")


def read_watermark(data: bytes) -> WatermarkWord:
    """Return the contents of a message.

    Raises:
        ValueError: it is no watermark.
    """
    try:
        watermark = _read(data)
    except JsonError as error:
        raise ValueError(f"no watermark: {error}") from error
    if watermark.seq < 0 or not 0 < watermark.epoch < 1 << 32:
        raise ValueError(f"no watermark: epoch {watermark.epoch}, seq {watermark.seq}")
    read_claim(watermark)
    return watermark


def read_claim(watermark: WatermarkWord) -> Claim:
    """Return the claim of a watermark. Raises: ValueError: its hash is none."""
    if not _HASH.fullmatch(watermark.hash):
        raise ValueError(f"no watermark: hash {watermark.hash[:32]!r}")
    return watermark.claim


class Watermarks:
    """Tells each lane how far the hub holds it."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = {lane.name: lane for lane in lanes}

    def on_message(self, message: Inbound, changes: LedgerChanges) -> None:
        """Take in a watermark. The writer stores it; the lane keeps the claim in memory.

        Raises:
            ValueError: it is no watermark, or of no lane.
        """
        lane = self._lane(message)
        watermark = read_watermark(message.data)
        lane.on_watermark(watermark.epoch, watermark.claim)

    def on_held(self, message: Inbound, changes: LedgerChanges) -> None:
        """Take in how far the hub holds former epochs of a lane; of others the ledger knows nothing.

        Raises:
            ValueError: it does not say so, or of no lane.
        """
        lane = self._lane(message)
        try:
            held = _read_held(message.data)
        except JsonError as error:
            raise ValueError(f"no watermarks of former epochs: {error}") from error
        claims = [
            (epoch, read_claim(WatermarkWord(epoch, *words)))
            for epoch, words in held.epochs.items()
        ]
        for epoch, claim in claims:
            lane.on_watermark(epoch, claim)

    def _lane(self, message: Inbound) -> Lane:
        lane = self._lanes.get(message.tokens[-1])
        if lane is None or len(message.tokens) != 3:
            raise ValueError("a watermark of no lane")
        return lane


class Asks:
    """Hands every lane the hub's requests for it: `s.resend.<lane>` in IN."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._lanes = {lane.name: lane for lane in lanes}

    def on_message(self, message: Inbound, changes: LedgerChanges) -> None:
        """Take in a request; it is kept in memory, the hub asks again.

        Raises:
            ValueError: it is none, or of no lane.
        """
        lane = self._lanes.get(message.tokens[-1])
        if lane is None or len(message.tokens) != 3:
            raise ValueError("a request to resend of no lane")
        lane.on_ask(read_ask(message.data))
