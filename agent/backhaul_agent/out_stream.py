"""An OUT stream as the leaf server holds it: where it ends, and what stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.appender import Tail
from backhaul_codec import CodecError, peek

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from backhaul_agent.jetstream import JetStream, Stored
    from backhaul_agent.steps import Steps

# On what is appended again: the lane's position, and of which epoch that is. The message's own seq
# and epoch are those it always had.
NEXT_HEADER = "Backhaul-Next"
EPOCH_HEADER = "Backhaul-Epoch"
WALK_BACK = 64  # how many foreign messages at a stream's end are passed over to find our last


class Position(NamedTuple):
    """What a message says of the lane's position: the last new seq of an epoch."""

    epoch: int
    seq: int


class OutStream:
    """Reads one OUT stream; lives as long as a connection."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self.created = ""  # which stream it is: one that was made anew says otherwise
        self.foreign_messages = 0
        self._jetstream = jetstream
        self._stream = stream

    async def tail(self, epoch: int, known: AbstractSet[int], steps: Steps) -> Tail:
        """Return where the stream ends; what another than this ledger wrote is passed over.

        ``known``: the epochs of this ledger. An unknown one that came after the last step was
        written by a newer ledger: this one is an old copy.
        """
        self.foreign_messages = 0
        self.created, state = await self._jetstream.created_and_state(self._stream)
        last, first = int(state["last_seq"]), int(state["first_seq"])
        if not state["messages"]:
            return Tail(last)
        stranger = 0
        for stream_seq in range(last, max(first, last - WALK_BACK + 1) - 1, -1):
            message = await self._jetstream.message(self._stream, seq=stream_seq)
            position = position_of(message) if message is not None else None
            if position is not None and position.epoch == epoch:
                return Tail(last, *position, stranger)
            if position is not None and position.epoch not in known and not stranger:
                stranger = position.epoch * self._is_newer(stream_seq, steps)
            self.foreign_messages += message is not None
        return Tail(last, stranger=stranger)

    async def purge(self, next_seq: int) -> None:
        """Empty the stream; the next message gets ``next_seq``."""
        await self._jetstream.purge(self._stream, next_seq)

    def _is_newer(self, stream_seq: int, steps: Steps) -> bool:
        """Whether a message came after this ledger last looked; never, where it never did."""
        if self.created != steps.created or not steps.steps:
            return bool(steps.created)
        return stream_seq > steps.steps[-1].from_seq + steps.steps[-1].offset


def position_of(message: Stored) -> Position | None:
    """Return what a message says of the position, or None where it is none of an agent's."""
    try:
        header = peek(message.data)
    except CodecError:
        return None
    if header.epoch == 0 or header.seq == 0:
        return None
    told = headers_of(message.headers)
    seq, epoch = told.get(NEXT_HEADER, ""), told.get(EPOCH_HEADER, "")
    if seq.isdecimal() and epoch.isdecimal():
        return Position(int(epoch), int(seq))
    return Position(header.epoch, header.seq)


def headers_of(raw: bytes) -> dict[str, str]:
    """Return a message's headers; the first line says the version."""
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs if name}
