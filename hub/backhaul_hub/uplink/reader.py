"""Reading UP: one shard's messages into continuity and to consumers, garbage into quarantine.

Every read begins with the last message read before: if that is another one, or not there, the
stream has lost something, and is audited (uplink/audit.py) before anything else is believed of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.blocks import BlockContent, block_of
from backhaul_hub.continuity.examine import (
    Examined,
    MissingDictionaryError,
    UnreadableError,
    own_hash,
)
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.repeats import Run, forks_from
from backhaul_hub.db.change import RowChange
from backhaul_hub.errors import HubError
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_position
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.stream_reader import ReadQuestion, Stored, StoredReader
from backhaul_hub.uplink.audit import Audit, AuditFindings, require_gone
from backhaul_hub.uplink.dictionaries import parts, refers_to
from backhaul_hub.uplink.dictionary_bounds import DictionaryKey
from backhaul_hub.uplink.hashes import MessageHashes
from backhaul_hub.uplink.intake import Said, UplinkIntake
from backhaul_hub.uplink.quarantine import set_aside
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_BATCH_MESSAGES = 512
TROUBLES = (HubError, NatsError, OSError)
"""The errors that are waited out."""


async def _no_doubt(stream: str) -> str:
    """Believe the one server that there is."""
    return ""


class UplinkReader:
    """Reads one UP stream, in the turns of all (uplink/turns.py).

    Args:
        intake: takes in what it has read; one for all readers.
        doubt: as `Audit`.
    """

    def __init__(
        self,
        stream: str,
        client: Client,
        api: JetStreamApi,
        intake: UplinkIntake,
        doubt: Callable[[str], Awaitable[str]] = _no_doubt,
    ) -> None:
        self.stream = stream
        self.position = ReadPosition()
        self.caught_up = False
        """Whether all has been read that was in the stream at the start, or when it lost some."""
        self.look_due = True
        """Whether it looks at its stream before it reads on."""
        self._reader = StoredReader(client, stream)
        self._api = api
        self._intake = intake
        self._continuity, self._registry = intake.continuity, intake.registry
        self._dictionaries = intake.dictionaries
        self._blocks = BlockStore(self._registry, stream, intake.blocks)
        self._log = intake.blocks.of(stream)
        self._audit = Audit(stream, api, self._reader, self._blocks, self._dictionaries, doubt)
        self._trouble = Trouble(
            log, "uplink_interrupted", *TROUBLES, over="uplink_resumed", stream=stream
        )
        self._failed: Exception | None = None
        self._last_is_there = False
        self._catch_up_to = 0
        self._thinned: set[LaneKey] = set()
        self.hashes = MessageHashes(client, stream, self._continuity, self._blocks)
        self._judging: asyncio.Task[None] | None = None
        # Lanes in which something came again: others may be in another shard, where UP holds them.
        self._repeated: set[LaneKey] = set()

    async def begin(self) -> None:
        """Read in hub.db where to read on."""
        await self._intake.begin()
        self.position = await read_position(self._registry, self.stream)
        number = block_of(self.position.seq)
        self._log.replace(await self._blocks.content(number))
        self._intake.catch_up(self.stream, number)

    def end(self) -> None:
        """Read no more."""
        if self._judging is not None:
            self._judging.cancel()

    def fail(self, error: Exception) -> None:
        """Take in that it cannot read on now: it is to recover first."""
        self._failed = error
        self.look_due = True

    async def recover(self) -> None:
        """Look at the stream until that succeeds; trouble is logged once and waited out."""
        failed, self._failed = self._failed, None
        while True:
            if failed is not None:
                self._trouble.note(failed)
                await self._trouble.pause()
            try:
                return await self._look()
            except TROUBLES as error:
                failed = error

    def note_state(self, info: Json) -> None:
        """Take in the stream's state: a loss while nothing came is noticed so."""
        self.look_due = self.look_due or self._audit.differs(info, self.position)

    def wanted(self, messages_max: int) -> ReadQuestion:
        """Return the question for the next messages, behind the last one that was read."""
        return ReadQuestion(self.stream, self._next(), messages_max + 1)

    async def accept(self, answer: list[Stored] | HubError) -> list[Stored]:
        """Return the next messages of an answer; none at the end, and none where a look has become due.

        Raises:
            HubError: the answer is an error, or cannot be believed.
        """
        if isinstance(answer, HubError):
            raise answer
        known, messages = self.position, answer
        if messages:
            await require_gone(self._api, self._reader, messages, self._next(), messages[-1].seq)
        self._trouble.end()
        if self._last_is_there:
            is_known = messages and (messages[0].seq, messages[0].stored_ns) == (
                known.seq,
                known.stored_ns,
            )
            messages = messages[1:] if is_known else []
            if not is_known and await self._api.first_message(self.stream, known.seq) != (
                known.seq,
                known.stored_ns,
            ):
                self.look_due = True
            # Else who answered is behind the stream's leader: the next answer may come from another.
        if not messages:
            self._note_progress()
        return messages

    def _next(self) -> int:
        return self.position.seq if self._last_is_there else self.position.seq + 1

    async def set_aside(self, examined: Sequence[tuple[Stored, Said]]) -> None:
        """Copy to QUARANTINE the messages that nobody can read.

        Raises:
            HubError: the server refuses, or does not answer.
        """
        for message, said in examined:
            if self._is_erased(message):
                continue
            if isinstance(said, UnreadableError) and self._dictionaries.is_copied(
                self.stream, said
            ):
                await set_aside(self._api, self.stream, self.position.created, message, said)

    def tell(self, examined: Sequence[tuple[Stored, Said]]) -> list[RowChange]:
        """Take in the next messages, and move on behind them; return the rows of this stream to be put."""
        garbage = 0
        for message, said in examined:
            if self._is_erased(message):
                self._log.add(message.seq, message.stored_ns, None)
            elif isinstance(said, UnreadableError):
                self._note_unreadable(message, said)
                garbage += 1
            else:
                held = self._tell(message, said)
                place = (said.key, said.seq) if held else None
                self._log.add(message.seq, message.stored_ns, place)
        last = examined[-1][0]
        self.position = replace(
            self.position,
            seq=last.seq,
            stored_ns=last.stored_ns,
            quarantined=self.position.quarantined + garbage,
        )
        self._last_is_there = True
        self._note_progress()
        return self._blocks.put(self._log.take_closed())

    def _is_erased(self, message: Stored) -> bool:
        """Say whether it is of a device that was erased: it was on its way, and goes as soon as that is seen."""
        erased = self._continuity.erased
        return bool(erased) and message.subject.partition(".")[2].partition(".")[0] in erased

    async def take_up(self) -> bool:
        """Take up messages that were read before their dictionary came; return whether any were looked at."""
        row = self._dictionaries.awaited.next_here(self.stream)
        if row is None:
            return False
        found = await self._reader.read(row.low, _BATCH_MESSAGES, subject=f"up.{row.device}.>")
        messages = [each for each in found if each.seq <= min(row.high, self.position.seq)]
        wanted, missing = DictionaryKey(row.device, row.digest), False
        for part in parts([each for each in messages if refers_to(each) == wanted]):
            await self._dictionaries.prepare(part)
            examined = list(zip(part, await self._intake.examine(part), strict=True))
            await self.set_aside(examined)
            async with self._registry.turn:
                old: dict[int, BlockContent] = {}
                for message, said in examined:
                    if isinstance(said, MissingDictionaryError):
                        missing = True
                    elif isinstance(said, UnreadableError):
                        self._explain_unreadable(message, said)
                    elif self._tell(message, said):
                        await self._hold(message.seq, said, old)
                blocks = [(each.block, _changed(each)) for each in old.values()]
                await self._store(self._blocks.put(blocks))
            self._intake.stored()
        if missing:  # it has made room for another one meanwhile
            self._dictionaries.awaited.gone(row)
            return False
        async with self._registry.turn:
            self._dictionaries.awaited.taken(row, messages[-1].seq if messages else row.high)
            if row.low > row.high:
                self._continuity.waited(row.device, row.digest)
            await self._store(())
        return True

    async def _hold(self, stream_seq: int, said: Examined, old: dict[int, BlockContent]) -> None:
        """Note that a message that was read before counts as held now; `old`: blocks that are not open."""
        if self._log.add_held(stream_seq, (said.key, said.seq)):
            return
        number = block_of(stream_seq)
        if number not in old and (content := await self._blocks.content(number)) is not None:
            old[number] = content
        if number in old:
            old[number].hold(said.key, said.seq)

    def judge_repeats(self) -> None:
        """Compare repeats with UP's messages, beside the reading."""
        if self._judging is None or self._judging.done():
            doubts = self._take_doubts()
            self._judging = asyncio.create_task(self._judge(doubts)) if doubts else None

    def _take_doubts(self) -> Mapping[LaneKey, list[Run]]:
        repeated, self._repeated = self._repeated, set()
        return self._continuity.take_repeats(repeated)

    async def _judge(self, doubts: Mapping[LaneKey, list[Run]]) -> None:
        while doubts:
            for key, runs in doubts.items():
                for run in runs:
                    try:
                        await self._compare(key, run)
                    except (HubError, NatsError, OSError) as error:
                        log.info("repeat_not_compared", device=key.device, error=str(error))
                        self._continuity.unclear(key)
            # What came again meanwhile: nothing may come after it.
            doubts = self._take_doubts()

    async def _compare(self, key: LaneKey, run: Run) -> None:
        hashes = [(await self.hashes.of(key, seq, seq))[0] for seq in (run.first - 1, run.last)]
        if since := forks_from(run, hashes):
            self._continuity.fork(key, since)

    def _tell(self, message: Stored, said: Examined) -> bool:
        """Tell a good message to all; return whether it counts as held."""
        bound = self._continuity.beyond_bounds(said.key, said.seq, message.stored_ns)
        if bound:
            self._note_refused(said.key, bound)
            return False
        is_new = self._continuity.arrived(
            said.key, said.seq, len(message.body), message.stored_ns, link=said.link, own=said.own
        )
        if not is_new:
            self._repeated.add(said.key)
        if said.word is not None:
            self._intake.words.take(said.key, said.seq, said.word, message.stored_ns)
        if said.seq == 1:
            said = replace(said, stored_ns=message.stored_ns)
        self._intake.tell(said, is_new=is_new)
        return True

    def _note_unreadable(self, message: Stored, error: UnreadableError) -> None:
        self._log.add(message.seq, message.stored_ns, None)
        if self._dictionaries.waits(self.stream, message.seq, error):
            # It is not held, and no garbage: it is taken up once its dictionary is here.
            if isinstance(error, MissingDictionaryError) and error.at is not None:
                self._continuity.wait(*error.at, error.digest)
            return
        prefix, device, *_ = message.subject.split(".")
        # The hub's own transform puts it there. What stands under UP's own subject is nobody's (ADR 25).
        if prefix == "up":
            self._intake.unreadable(device)
        self._explain_unreadable(message, error)

    def _explain_unreadable(self, message: Stored, error: UnreadableError) -> None:
        if error.place is not None:
            # It is as the vehicle sealed it: sent again it would be no better.
            key, seq = error.place
            own = own_hash(message.subject, message.body)
            self._continuity.explain(key, seq, seq, f"unreadable: {error.code}", own)

    def _note_refused(self, key: LaneKey, bound: str) -> None:
        count = self._continuity.refused[key.device, bound]
        if count & (count - 1) == 0:
            log.error("device_beyond_bounds", device=key.device, bound=bound, messages=count)

    async def _store(self, changes: Sequence[RowChange], *, whole: bool = False) -> None:
        await self._intake.store({self.stream: self.position}, changes, whole=whole)

    async def _look(self) -> None:
        """Audit the stream, and stop counting on lost messages."""
        self.look_due = False
        state, finding = await self._audit.look(self.position)
        if finding.position != self.position or finding.reasons or finding.aged:
            if finding.reasons:
                self.caught_up = False
            await self._apply(finding)
        self._audit.taken_in(state)
        self._log.replace(await self._blocks.content(block_of(self.position.seq)))
        if not self.caught_up:
            self._catch_up_to = state.last_seq
        self._last_is_there = state.first_seq <= self.position.seq

    async def _apply(self, finding: AuditFindings) -> None:
        async with self._registry.turn:
            remade = {content.block.number: content for content in finding.remade}
            touched = {*finding.gone, *remade}
            changed = await self._blocks.lanes_in(touched)
            aged = await self._blocks.lanes_in(finding.aged)
            elsewhere = {key: await self._blocks.elsewhere(key, touched) for key in changed}
            for key, ranges in aged.items():
                self._continuity.age(key, ranges)
            for key, stored in elsewhere.items():
                for content in finding.remade:
                    stored = stored.union(content.lanes.get(key, RangeSet()))
                self._continuity.restate(key, stored)
            was_at = self.position
            self.position = finding.position
            changes = [
                *self._blocks.drop({*finding.aged, *touched}),
                *self._blocks.put((each.block, each.lanes) for each in finding.remade),
            ]
            is_open = bool(self._log.contents().keys() & {*finding.aged, *touched})
            if is_open:
                self._log.replace(None)
            await self._store(changes, whole=is_open)
        if finding.reasons:
            self._thinned |= changed.keys()
            log.error(
                "up_is_not_as_it_was_read",
                stream=self.stream,
                reasons=finding.reasons,
                lanes=len(changed),
                was_at=was_at.seq,
                reads_on_from=self.position.seq,
            )

    def _note_progress(self) -> None:
        """Where all of UP is read, messages ever seen and not held now are lost."""
        if self.caught_up or self.position.seq < self._catch_up_to:
            return
        self.caught_up = True
        lost = {key: self._continuity.lost(key) for key in self._thinned}
        self._thinned.clear()
        if any(lost.values()):
            log.error(
                "up_lost_messages",
                stream=self.stream,
                messages=sum(lost.values()),
                lanes=sum(1 for count in lost.values() if count),
            )


def _changed(content: BlockContent) -> dict[LaneKey, RangeSet]:
    return {key: content.lanes[key] for key in content.changed}
