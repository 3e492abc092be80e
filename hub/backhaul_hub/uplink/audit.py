"""Auditing a stream of UP: which of the messages read are still there, and which are not.

A store put back from a copy, a power cut without sync, a purge, a deletion, a stream made anew: the
server says nothing of any of them. What tells are the stream's own numbers and whether the
message at a known sequence still has the time it had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from backhaul_hub.continuity.blocks import (
    Block,
    BlockContent,
    StreamState,
    block_of,
    limits_explain,
)
from backhaul_hub.continuity.examine import UnreadableError, examine
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.lane_records.lane_rows import ReadPosition
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.stream_reader import Stored, StoredReader, holes
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_runtime.jetstream import stamp_ns

_BATCH_MESSAGES = 512
# A leader that is cut off from the others of its cluster believes in itself for so long at the most.
_SURE_NS = 15 * 1_000_000_000
# That the damaged one of three servers answers each time is one in six thousand.
_OTHERS = 8

Reason = Literal["recreated", "rolled_back", "purged", "deleted"]


@dataclass(slots=True)
class AuditFindings:
    """The findings of an audit. Numbers are of blocks."""

    position: ReadPosition
    """Where to go on reading."""
    reasons: list[Reason] = field(default_factory=list)
    aged: list[int] = field(default_factory=list)
    """Blocks that the stream's limits took: what was in them stays accounted for."""
    gone: list[int] = field(default_factory=list)
    """Blocks of which nothing is known to be there any more."""
    remade: list[BlockContent] = field(default_factory=list)
    """Blocks that have lost some of what was in them, as they are now."""


def stream_state(info: Json) -> StreamState:
    """Read the server's word on a stream (the answer of STREAM.INFO)."""
    config, state = info["config"], info["state"]
    last_seq = state["last_seq"]
    return StreamState(
        created=info["created"],
        first_seq=state["first_seq"] if state["messages"] else last_seq + 1,
        last_seq=last_seq,
        stored_bytes=state["bytes"],
        deleted=state.get("num_deleted", 0),
        age_ns_max=config.get("max_age", 0),
        bytes_max=config.get("max_bytes", -1),
        now_ns=stamp_ns(info["ts"]),
    )


class Audit:
    """Audits one stream.

    Args:
        reader: reads it by sequence.
        blocks: what was read of it.
        dictionaries: what its messages are packed against.
        doubt: says why a loss in a cluster is not to be believed, "" where it is (`ReplicaWatch.doubt`).
    """

    def __init__(
        self,
        stream: str,
        api: JetStreamApi,
        reader: StoredReader,
        blocks: BlockStore,
        dictionaries: Dictionaries,
        doubt: Callable[[str], Awaitable[str]],
    ) -> None:
        self._stream = stream
        self._api = api
        self._reader = reader
        self._blocks = blocks
        self._dictionaries = dictionaries
        self._doubt = doubt
        self._deleted = 0
        self._suspected_ns: int | None = None

    def differs(self, info: Json, position: ReadPosition) -> bool:
        """Say whether a stream's info alone calls for an audit."""
        state = stream_state(info)
        return (
            state.created != position.created
            or state.last_seq < position.seq
            or state.first_seq != position.first_seq
            or state.deleted != self._deleted
        )

    async def look(self, position: ReadPosition) -> tuple[StreamState, AuditFindings]:
        """Compare the stream with the record of its reading.

        Of a cluster's stream a loss is believed once it has been there for 15 s, and while no other server
        holds what its leader lacks.

        Raises:
            HubError: the server does not answer, or the stream or hub.db is not there; or it is too
                early to say.
        """
        info = await self._api.info(self._stream)
        state, finding = await self._compare(stream_state(info), position)
        if not finding.reasons:
            self._suspected_ns = None
        elif info["config"].get("num_replicas", 1) > 1:
            since_ns = self._suspected_ns = self._suspected_ns or state.now_ns
            if state.now_ns - since_ns < _SURE_NS:
                raise HubError(f"{self._stream} seems {', '.join(finding.reasons)}; looks again")
            if doubt := await self._doubt(self._stream):
                raise HubError(doubt)
            # What was seen may have been a leader's that has just been replaced for what it lacks.
            info = await self._api.info(self._stream)
            state, finding = await self._compare(stream_state(info), position)
        return state, finding

    def taken_in(self, state: StreamState) -> None:
        """Take note that the findings of this state are stored: they are no news any more."""
        self._deleted = state.deleted

    async def _compare(
        self, state: StreamState, position: ReadPosition
    ) -> tuple[StreamState, AuditFindings]:
        if position.created and position.created != state.created:
            return state, await self._recreated(state, position)
        finding = AuditFindings(replace(position, created=state.created))
        if await self._went_back(state, position):
            await self._find_what_stayed(state, finding)
            # It may begin earlier than it did.
            began = min(state.first_seq, finding.position.first_seq)
            finding.position = replace(finding.position, first_seq=began)
        if state.first_seq > finding.position.first_seq:
            await self._find_what_front_lost(state, finding)
        if state.deleted != self._deleted:
            await self._find_what_middle_lost(state, finding)
        return state, finding

    async def _recreated(self, state: StreamState, position: ReadPosition) -> AuditFindings:
        return AuditFindings(
            replace(position, created=state.created, seq=0, stored_ns=0, first_seq=state.first_seq),
            ["recreated"],
            gone=[block.number for block in await self._blocks.blocks()],
        )

    async def _went_back(self, state: StreamState, position: ReadPosition) -> bool:
        if state.last_seq < position.seq:
            return True
        if position.seq < state.first_seq:
            return False
        return not await self._is_there(position.seq, position.stored_ns)

    async def _find_what_stayed(self, state: StreamState, finding: AuditFindings) -> None:
        """Find the newest block that is wholly there; all after it is to be read again."""
        finding.reasons.append("rolled_back")
        seq, stored_ns = state.first_seq - 1, 0
        for block in reversed(await self._blocks.blocks(block_of(state.first_seq))):
            if block.high <= state.last_seq and await self._is_there(block.high, block.high_ns):
                seq, stored_ns = block.high, block.high_ns
                break
            finding.gone.append(block.number)
        finding.position = replace(
            finding.position, seq=min(seq, finding.position.seq), stored_ns=stored_ns
        )

    async def _find_what_front_lost(self, state: StreamState, finding: AuditFindings) -> None:
        """Tell messages that the limits took off the front from purged ones."""
        first = state.first_seq
        before = [
            block
            for block in await self._blocks.blocks(last=block_of(first))
            if block.low < first and block.number not in finding.gone
        ]
        below = [block.number for block in before if block.high < first]
        if limits_explain(state, before):
            finding.aged += below
        else:
            finding.reasons.append("purged")
            finding.gone += below
            await self._remake((block for block in before if block.high >= first), finding)
        finding.position = replace(finding.position, first_seq=first)

    async def _find_what_middle_lost(self, state: StreamState, finding: AuditFindings) -> None:
        """Find the blocks in which single messages were deleted, or lost by the server."""
        settled = {*finding.gone, *finding.aged, *(each.block.number for each in finding.remade)}
        first, last = block_of(state.first_seq), block_of(finding.position.seq)
        candidates = [
            block
            for block in await self._blocks.blocks(first, last)
            if block.number not in settled and block.high <= finding.position.seq
        ]
        deleted = await self._deleted_by_block()
        touched = [
            block
            for block in candidates
            if deleted is None or deleted.get(block.number, 0) > block.absent
        ]
        if touched:
            finding.reasons.append("deleted")
            await self._remake(touched, finding)

    async def _deleted_by_block(self) -> dict[int, int] | None:
        """Count the deleted sequences of each block; None where the server does not list them."""
        try:
            info = await self._api.request(f"STREAM.INFO.{self._stream}", {"deleted_details": True})
        except JetStreamError:
            return None
        counts: dict[int, int] = {}
        for seq in info["state"].get("deleted") or []:
            counts[block_of(seq)] = counts.get(block_of(seq), 0) + 1
        return counts

    async def _remake(self, blocks: Iterable[Block], finding: AuditFindings) -> None:
        for block in blocks:
            content = await self._read_block(block)
            if content is None:
                finding.gone.append(block.number)
            else:
                finding.remade.append(content)

    async def _read_block(self, block: Block) -> BlockContent | None:
        """Read the messages that a block still holds of those read; None where there are none."""
        content = BlockContent(Block(block.number))
        seq = block.low
        while seq <= block.high:
            wanted = min(_BATCH_MESSAGES, block.high - seq + 1)
            messages = await self._reader.read(seq, wanted)
            end = messages[-1].seq if messages else block.high
            await require_gone(self._api, self._reader, messages, seq, end)
            await self._dictionaries.prepare(messages)
            for message in messages:
                if message.seq <= block.high:
                    place = place_of(message.subject, message.body, self._dictionaries.find)
                    content.add(message.seq, message.stored_ns, place)
            if not messages:
                break
            seq = messages[-1].seq + 1
        return content if content.block.messages else None

    async def _is_there(self, seq: int, stored_ns: int) -> bool:
        """Say whether the stream has the very message that was read at this sequence."""
        return await self._api.first_message(self._stream, seq) == (seq, stored_ns)


async def require_gone(
    api: JetStreamApi, reader: StoredReader, messages: list[Stored], lo: int, hi: int
) -> None:
    """Make sure that messages missing from an answer about `lo` to `hi` are not in the stream either.

    Raises:
        HubError: the stream's leader has some of it, or another server; ask again.
    """
    for low, high in holes((message.seq for message in messages), lo, hi):
        found = await api.first_message(reader.stream, low)
        if found is not None and found[0] <= high:
            raise HubError(f"{reader.stream}: a server that lags behind was asked for {found[0]}")
        # The leader may be the one whose disk was damaged. Which server answers is chance.
        for _ in range(_OTHERS):
            others = await reader.read(low, 1)
            if others and others[0].seq <= high:
                raise HubError(f"{reader.stream}: its leader lacks {low}, which another server has")


def place_of(
    subject: str, body: bytes, find: Callable[[str, bytes], bytes | None]
) -> tuple[LaneKey, int] | None:
    """Return the place in its lane of a message that counts as held, None for any other; `find`: see `examine`."""
    try:
        said = examine(subject, body, find)
    except UnreadableError:
        return None
    return said.key, said.seq
