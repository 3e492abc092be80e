"""Comparing a stream at two servers, for the most part while one of them still takes messages in."""

from __future__ import annotations

from nats.aio.client import Client

from backhaul_hub.continuity.blocks import Block, block_of, limits_explain
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from backhaul_hub.uplink.audit import stream_state
from backhaul_hub.uplink.stream_digest import (
    BLOCK_SEQS,
    compare,
    digest_blocks,
    ranges,
    state_differs,
)

_UNKNOWN, _IN_DOUBT = -1, -2
_BATCH_MESSAGES = 512


class SideBySide:
    """Compares one stream with its copy at another server.

    What is written stays as it is, so a block that was compared is not looked at again, unless the
    old server has deleted something from the middle since: then all of it is.

    Args:
        here, there: connections in account HUB, to the old and the new server.
        old, new: the API over them.
    """

    def __init__(
        self, stream: str, here: Client, there: Client, old: JetStreamApi, new: JetStreamApi
    ) -> None:
        self._stream = stream
        self._here, self._there = here, there
        self._old, self._new = old, new
        self._checked = 0
        """All up to this sequence is the same."""
        self._deleted = _UNKNOWN

    async def look(self) -> int:
        """Compare the blocks that are complete on both sides; return how many sequences are not yet.

        Raises:
            HubError: a server does not answer.
        """
        was, now = await self._infos()
        if not _readable(was) or self._deleted not in (_UNKNOWN, _deleted(was)):
            return 0  # all of it is read when it stands still
        first, last = was["state"]["first_seq"], was["state"]["last_seq"]
        self._deleted = _deleted(was)
        whole = min(last, now["state"]["last_seq"]) // BLOCK_SEQS * BLOCK_SEQS - 1
        if await self._compare(whole):
            self._deleted = _IN_DOUBT
            return 0
        uncompared: int = last - max(self._checked, first - 1)
        return uncompared

    async def differs(self) -> str:
        """Return the differences between two streams that stand still, in words; "" where there are none.

        Raises:
            HubError: a server does not answer.
        """
        was, now = await self._infos()
        grows = bool(now["config"].get("sources"))
        if wrong := state_differs(was["state"], now, grows=grows):
            return wrong
        if not _readable(was):
            return ""
        if wrong := await self._front_differs(was, now):
            return wrong
        if self._deleted != _deleted(was):
            self._checked = 0
        return await self._compare(was["state"]["last_seq"])

    async def _front_differs(self, was: Json, now: Json) -> str:
        """Return whether a front is missing there that no limit has taken, in words; "" if not.

        nats-server 2.15 makes such a mirror: its consumer, reset to the start while its state is
        written, may answer with what was delivered once, and the mirror passes over all that (ADR 1).
        """
        state, began = stream_state(now), stream_state(was).first_seq
        reader, high = StoredReader(self._here, self._stream), state.first_seq
        while high > began:
            low = max(began, high - _BATCH_MESSAGES)
            if (newest := await _newest(reader, low, high)) is not None:
                block = Block(block_of(newest.seq))
                block.add(newest.seq, newest.stored_ns)
                if limits_explain(state, [block]):
                    return ""
                return f"it begins at sequence {state.first_seq}, not {began}"
            high = low
        return ""

    async def _infos(self) -> tuple[Json, Json]:
        verb = f"STREAM.INFO.{self._stream}"
        return await self._old.request(verb), await self._new.request(verb)

    async def _compare(self, last: int) -> str:
        stretches = ranges(max(await self._first(), self._checked + 1), last)
        ours = await digest_blocks(self._here, self._stream, stretches)
        theirs = await digest_blocks(self._there, self._stream, stretches)
        # What limits have taken off the front meanwhile, of either, is no difference.
        first = await self._first()
        pairs = [each for each in zip(ours, theirs, strict=True) if each[0].low >= first]
        wrong = compare([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        if not wrong:
            self._checked = max(self._checked, last)
        return wrong

    async def _first(self) -> int:
        """Return where the one that begins later begins."""
        was, now = await self._infos()
        return max(1, int(was["state"]["first_seq"]), int(now["state"]["first_seq"]))


async def _newest(reader: StoredReader, low: int, high: int) -> Stored | None:
    """Return the newest message from `low` to below `high`; one read may end before it, by its bytes."""
    newest = None
    while read := [each for each in await reader.read(low, high - low) if each.seq < high]:
        newest = read[-1]
        low = newest.seq + 1
        if low == high:
            break
    return newest


def _readable(info: Json) -> bool:
    """Tell whether a stream can be read by sequence."""
    return bool(info["config"].get("allow_direct"))


def _deleted(info: Json) -> int:
    """Return how many messages are gone from the middle of a stream."""
    return int(info["state"].get("num_deleted", 0))
