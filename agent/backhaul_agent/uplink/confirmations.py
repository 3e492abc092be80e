"""The hub's watermarks, believed only where they speak of the ledger's own messages.

A watermark comes with the hash of the message that it names. A lane is a chain, so where the ledger's
message there has the same hash, all before it is at the hub as well. Where it has another, somebody else
has written in this epoch: a machine with a copy of this disk, or a ledger that was put back. Then the epoch
is over, and what the ledger has of it is compared message by message (`uplink/reconcile.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from backhaul_codec.protocol.words import FORKED

if TYPE_CHECKING:
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.ledger.ledger import Ledger

OVER, _FORKED, _UNPROVEN = 1, 2, 3
UNPROVEN = "the hub cannot tell whether all that it holds of this epoch is one history"
UNCHAINED = "its messages do not say what stood before them"
log = structlog.get_logger("lane")


class Claim(NamedTuple):
    """The hub's word on an epoch: it holds all up to ``seq``, and this is the hash of that message.

    ``fork``: 1 where somebody has said that the epoch is over, 2 where the hub has seen two histories of it,
    3 where a receipt leaves it open whether there are.
    """

    seq: int
    hash: bytes | None = None
    fork: int = 0


class Confirmations:
    """The claims about one lane; lives as long as the daemon."""

    def __init__(self, lane: str, ledger: Ledger, writer: Writer) -> None:
        self.disputed: set[int] = set()
        """Epochs whose messages are to be compared one by one."""
        self.compared: set[int] = set()
        """Epochs whose messages have been: no watermark says more of them."""
        self.vague: set[int] = set()
        """Epochs whose last watermark came without the hash of its message: the hub is asked for it."""
        self._lane = lane
        self._ledger = ledger
        self._writer = writer
        self._claims: dict[int, Claim] = {}

    @property
    def due(self) -> bool:
        """Whether a claim waits to be judged."""
        return bool(self._claims)

    def claim(self, epoch: int, claim: Claim) -> None:
        """Take in the hub's word on an epoch; the newest word counts."""
        if not self._is_settled(epoch):
            self._claims[epoch] = claim

    async def judge(self) -> list[tuple[int, int]]:
        """Return up to which seq each epoch is confirmed, of those that were claimed: (epoch, seq).

        Raises:
            LedgerStorageError: the ledger cannot be read; the claims stay.
        """
        proven: list[tuple[int, int]] = []
        for epoch, claim in list(self._claims.items()):
            lane = self._ledger.lane(self._lane, epoch)
            if lane is not None and await self._is_proven(lane, claim):
                proven.append((epoch, claim.seq))
            if self._claims.get(epoch) == claim:
                del self._claims[epoch]
        return proven

    def dispute(self, epoch: int, why: str) -> None:
        """Have an epoch's messages compared; the current one is over with this."""
        if epoch in self.disputed or self._is_settled(epoch):
            return
        log.warning("hub_content_in_doubt", lane=self._lane, epoch=epoch, why=why)
        self.disputed.add(epoch)
        if epoch == self._ledger.epoch:
            self._writer.gate.epochs.behind(why)
            self._writer.wake()

    def postpone(self, epoch: int) -> None:
        """Take in that an epoch was compared, and that some of it is on its way to the hub again."""
        self.disputed.discard(epoch)

    def settle(self, epoch: int) -> None:
        """Take in that an epoch's messages have been compared."""
        self.disputed.discard(epoch)
        self.compared.add(epoch)
        self._claims.pop(epoch, None)

    def _is_settled(self, epoch: int) -> bool:
        """Whether an epoch was compared, and has not grown since by messages found in OUT."""
        lane = self._ledger.lane(self._lane, epoch)
        return epoch in self.compared and (lane is None or lane.whole)

    async def _is_proven(self, lane: CommittedLane, claim: Claim) -> bool:
        if claim.fork == _FORKED or (claim.fork and lane.epoch == self._ledger.epoch):
            # Nobody else has written in an epoch that is merely unproven.
            self.dispute(lane.epoch, UNPROVEN if claim.fork == _UNPROVEN else FORKED)
        if claim.seq > lane.last_seq:
            self.dispute(lane.epoch, f"the hub holds more of {self._lane} than the ledger")
            return False
        if claim.seq <= lane.confirmed:
            self.vague.discard(lane.epoch)
            return True  # less than before: it has lost some
        own = await self._ledger.hash_at(lane, claim.seq)
        (self.vague.discard if claim.hash else self.vague.add)(lane.epoch)
        if claim.hash is None:
            # Of messages that have no link, as an older backhaul wrote them, no hub knows more.
            return own is None or not await self._ledger.is_linked(lane, claim.seq)
        if own is not None and own != claim.hash:
            self.dispute(lane.epoch, FORKED)
        if own != claim.hash:
            return False
        former = lane.epoch != self._ledger.epoch
        if former and not await self._ledger.is_chained(lane, claim.seq):
            self.dispute(lane.epoch, UNCHAINED)
            return False
        return True
