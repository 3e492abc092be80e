"""An OUT stream as the leaf server holds it: where it ends, its messages, and appending to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backhaul_agent.errors import JetStreamError
from backhaul_agent.ledger.rows import LedgerRow
from backhaul_agent.uplink.appender import Tail
from backhaul_agent.uplink.resend import Work
from backhaul_codec import CodecError, peek
from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import read_dictionary
from backhaul_runtime.jetstream import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.sequence_offsets import SequenceOffsets
    from backhaul_runtime.jetstream import StreamMessage

# On what is appended again: the lane's position, and of which epoch that is. The message's own seq
# and epoch are those it always had.
NEXT_HEADER = "Backhaul-Next"
EPOCH_HEADER = "Backhaul-Epoch"
STRIDE = 512
WALK_BACK = 64  # how many foreign messages at a stream's end are passed over to find our last


class OutPosition(NamedTuple):
    """A message's word on the lane's position: the last new seq of an epoch."""

    epoch: int
    seq: int


class OutStream:
    """Reads one OUT stream; lives as long as a connection."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self.created = ""  # which stream it is: one that was made anew says otherwise
        self.foreign_messages = 0
        self._jetstream = jetstream
        self._stream = stream
        self._runs: list[Work] = []
        self._again: set[int] = set()  # where runs begin that were appended again
        self._indexed = 0

    async def tail(self, epoch: int, known: AbstractSet[int], steps: SequenceOffsets) -> Tail:
        """Return where the stream ends; messages of another writer than this ledger are passed over.

        ``known``: the epochs of this ledger, ``epoch`` the current one and ``steps`` its own. An
        unknown epoch that came after the last step was written by a newer ledger: this one is an
        old copy.
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
            if position is not None and position.epoch in known | {epoch}:
                return Tail(last, *position, stranger)
            if position is not None and not stranger:
                stranger = position.epoch * self._is_newer(stream_seq, steps)
            self.foreign_messages += message is not None
        return Tail(last, stranger=stranger)

    @property
    def runs(self) -> list[Work]:
        """Return the index of the stream's messages."""
        return self._runs

    async def purge(self, next_seq: int) -> None:
        """Empty the stream; the next message gets ``next_seq``."""
        await self._jetstream.purge(self._stream, seq=next_seq)

    async def taken(self, durable: str) -> int:
        """Return the sequence up to which the hub has taken this stream's messages."""
        try:
            info = await self._jetstream.request(f"CONSUMER.INFO.{self._stream}.{durable}")
        except JetStreamError as error:
            if error.code == NOT_FOUND:
                return 0
            raise
        return int(info.get("ack_floor", {}).get("stream_seq", 0))

    async def rows(self, work: Work) -> list[LedgerRow]:
        """Return the messages of ``work`` that stand where they were found."""
        rows = []
        for index in range(work.hi - work.lo + 1):
            message = await self._jetstream.message(self._stream, seq=work.stream_seq + index)
            if message is not None and _identity(message) == (work.epoch, work.lo + index):
                rows.append(LedgerRow(work.lo + index, message.subject, message.data))
        return rows

    async def dictionary(self, digest: bytes) -> tuple[bytes, int, int] | None:
        """Return a dictionary that stands here, and the epoch and seq of the message that brings it."""
        subject = dictionary_subject(digest)
        message = await self._jetstream.message(self._stream, last_by_subj=subject)
        try:
            if message is not None and (own := _identity(message)):
                return read_dictionary(message.data, digest), *own
        except CodecError:
            pass
        return None

    async def find(self, epoch: int, missing: Iterable[tuple[int, int]]) -> list[Work]:
        """Return where this stream holds messages of an epoch that the ledger has no more."""
        await self.index()
        return self.find_indexed(epoch, missing)

    def find_indexed(self, epoch: int, missing: Iterable[tuple[int, int]]) -> list[Work]:
        """Return the same of the messages that stood here when it was indexed, without later ones."""
        wanted, found = RangeSet(missing), []
        for run in reversed(self._runs):
            if run.epoch != epoch:
                continue
            for lo, hi in _common(wanted, run.lo, run.hi):
                found.append(Work(epoch, lo, hi, run.stream_seq + lo - run.lo))
            wanted = RangeSet(
                hole for lo, hi in wanted for hole in RangeSet([run[1:3]]).holes(lo, hi)
            )
        return found

    async def index(self) -> None:
        """Learn the places of messages. Mostly seqs and sequences go up together, so few looks do.

        All of it, however many there are (four for each message at most): what was passed over would count
        as lost to the hub, or as never sent.
        """
        _, state = await self._jetstream.created_and_state(self._stream)
        if not state["messages"]:
            return
        first, last = int(state["first_seq"]), int(state["last_seq"])
        todo = [
            (low, min(low + STRIDE - 1, last))
            for low in range(max(first, self._indexed + 1), last + 1, STRIDE)
        ]
        while todo:
            low, high = todo.pop()
            (at_low, again), (at_high, _) = await self._look(low), await self._look(high)
            if at_low and at_high and at_high == (at_low.epoch, at_low.seq + high - low):
                self._runs.append(Work(at_low.epoch, at_low.seq, at_high.seq, low))
                self._again |= {low} if again else set()
                continue
            if low < high:
                middle = (low + high) // 2
                todo += [(low, middle), (middle + 1, high)]
        self._indexed = last

    def since(self, epoch: int, seq: int, older: Mapping[int, int]) -> dict[int, int]:
        """Return the epochs of messages behind a seq of one, and the highest seq of each, as indexed.

        ``older``: the epochs known to have ended before that one, and where; they are none of these. Where
        the one has nothing here the last of them says what is behind, but not by what was appended again:
        that may stand behind anything.
        """
        end = self._end_of(epoch, seq) or max(
            (self._end_of(*each, firsts_only=True) for each in older.items()), default=0
        )
        highest: dict[int, int] = {}
        for run in self._runs:
            if run.epoch not in older and run.stream_seq + run.hi - run.lo > end:
                highest[run.epoch] = max(run.hi, highest.get(run.epoch, 0))
        return highest

    def _end_of(self, epoch: int, seq: int, *, firsts_only: bool = False) -> int:
        """Return where the greatest seq of an epoch up to one stands, 0 where none does.

        What was appended again stands there twice: the first time counts.
        """
        ends = [
            (min(run.hi, seq), -run.stream_seq - min(run.hi, seq) + run.lo)
            for run in self._runs
            if run.epoch == epoch
            and run.lo <= seq
            and not (firsts_only and run.stream_seq in self._again)
        ]
        return -max(ends, default=(0, 0))[1]

    async def _look(self, stream_seq: int) -> tuple[OutPosition | None, bool]:
        """Return a message's place, and whether it stands there because it was appended again."""
        message = await self._jetstream.message(self._stream, seq=stream_seq)
        if message is None:
            return None, False
        return _identity(message), NEXT_HEADER in headers_of(message.headers)

    def _is_newer(self, stream_seq: int, steps: SequenceOffsets) -> bool:
        """Whether a message came after this ledger last looked; never, where it never did."""
        if self.created != steps.created or not steps.steps:
            return bool(steps.created)
        return stream_seq > steps.steps[-1].from_seq + steps.steps[-1].offset


def _common(ranges: RangeSet, low: int, high: int) -> list[tuple[int, int]]:
    return [(max(lo, low), min(hi, high)) for lo, hi in ranges if lo <= high and hi >= low]


def _identity(message: StreamMessage) -> OutPosition | None:
    """Return a message's own epoch and seq, or None where it has none."""
    try:
        header = peek(message.data)
    except CodecError:
        return None
    return OutPosition(header.epoch, header.seq) if header.epoch and header.seq else None


def position_of(message: StreamMessage) -> OutPosition | None:
    """Return a message's word on the position, or None where it is none of an agent's."""
    own = _identity(message)
    if own is None:
        return None
    told = headers_of(message.headers)
    seq, epoch = told.get(NEXT_HEADER, ""), told.get(EPOCH_HEADER, "")
    if seq.isdecimal() and epoch.isdecimal():
        return OutPosition(int(epoch), int(seq))
    return own


def headers_of(raw: bytes) -> dict[str, str]:
    """Return a message's headers; the first line says the version."""
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs if name}


class _Answer(msgspec.Struct):
    """The answer of the leaf server to an append."""

    seq: int = 0
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Answer).decode


class Appends:
    """Publishes the messages of one lane, each with the last sequence that the stream must have.

    ``on_answer`` is told of each, in the order of the answers: generation of the window, the sequence
    that was meant, whether it is stored there, and what else is wrong than that sequence, or nothing. ``push_prefix``:
    of the subjects on which the device pushes.
    """

    def __init__(
        self,
        client: Client,
        on_answer: Callable[[int, int, bool, str], None],
        push_prefix: str = "",
    ) -> None:
        self._push_prefix = push_prefix
        self._client = client
        self._on_answer = on_answer
        self._inbox = client.new_inbox()

    async def start(self) -> None:
        """Hear answers from now on. Raises: NatsError where the connection is gone."""
        self._answers = await self._client.subscribe(f"{self._inbox}.*.*", cb=self._on_message)

    async def stop(self) -> None:
        """Hear none any more."""
        if not self._client.is_closed:
            await self._answers.unsubscribe()

    async def append(
        self, row: LedgerRow, generation: int, expected: int, headers: Mapping[str, str]
    ) -> None:
        """Publish a message that is to be stored after the sequence ``expected``, or not at all."""
        await self._client.publish(
            row.subject,
            row.body,
            reply=f"{self._inbox}.{generation}.{expected + 1}",
            headers={"Nats-Expected-Last-Sequence": str(expected), **headers},
        )

    async def push(self, row: LedgerRow) -> None:
        """Publish a message to the hub, beside the stream; nobody answers."""
        await self._client.publish(self._push_prefix + row.subject, row.body)

    async def _on_message(self, message: Msg) -> None:
        _, generation, stream_seq = message.subject.rsplit(".", 2)
        try:
            answer = _decode(message.data)
            stored = bool(answer.seq) and not answer.error
        except msgspec.DecodeError:
            stored = False  # no responders: the stream is gone
        error = ""
        if not stored and message.data and b"wrong last sequence" not in message.data:
            error = f"append refused: {message.data[:200].decode(errors='replace')}"
        self._on_answer(int(generation), int(stream_seq), stored, error)
