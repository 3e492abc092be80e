"""The hashes of messages that UP holds, looked up where the blocks say that they stand."""

from __future__ import annotations

from nats.aio.client import Client

from backhaul_codec import CodecError, peek
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import SubjectError, parse_uplink
from backhaul_hub.continuity.examine import own_hash
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.nats.stream_reader import StoredReader

HASHES_MAX = 512
"""Seqs in one question."""
_BATCH_MESSAGES = 1024


class MessageHashes:
    """Looks messages of one UP stream up. Where a seq stands there twice, the first message counts.

    Args:
        stream: the UP stream.
        blocks: its blocks.
    """

    def __init__(
        self, client: Client, stream: str, continuity: Continuity, blocks: BlockStore
    ) -> None:
        self._client = client
        self._stream = stream
        self._continuity = continuity
        self._blocks = blocks

    async def of(self, key: LaneKey, low: int, high: int) -> list[str | None]:
        """Return the hash of each seq from `low` to `high` in hex, by UP's messages.

        None: the hub holds no message of that seq. Empty: it holds one, or has held it until UP's limits
        took it, and cannot say which.

        Raises:
            HubError: the server does not answer.
            RegistryError: hub.db refused.
        """
        state = self._continuity.lanes.get(key)
        if state is None:
            return [None] * (high - low + 1)
        found: dict[int, str] = {}
        for block, ranges in await self._blocks.places(key):
            if any(seq in ranges for seq in range(low, high + 1) if seq not in found):
                await self._look(key, block.low, block.high, low, high, found)
        unreadable = RangeSet(
            (a, b) for a, b, why in state.receipts if why.startswith("unreadable")
        )
        return [
            found.get(seq, "" if seq in state.held or seq in unreadable else None)
            for seq in range(low, high + 1)
        ]

    async def _look(
        self, key: LaneKey, first: int, last: int, low: int, high: int, found: dict[int, str]
    ) -> None:
        reader = StoredReader(self._client, self._stream)
        subject = f"up.{key.device}.>"
        while first <= last:
            messages = await reader.read(first, _BATCH_MESSAGES, subject=subject)
            for message in messages:
                if message.seq > last:
                    return
                try:
                    header = peek(message.body)
                    lane = parse_uplink(message.subject).lane
                except (CodecError, SubjectError):
                    continue
                if (lane, header.epoch) == (key.lane, key.epoch) and low <= header.seq <= high:
                    found.setdefault(header.seq, own_hash(message.subject, message.body).hex())
            if not messages:
                return
            first = messages[-1].seq + 1
