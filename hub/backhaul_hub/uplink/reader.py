"""Reading UP: one shard's messages into continuity and to consumers, garbage into quarantine.

Every read begins with the last message read before: if that is another one, or not there, the
stream has lost something, and is audited (uplink/audit.py) before anything else is believed of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.ranges import RangeSet
from backhaul_codec.wire.expansion import Expansion
from backhaul_hub.continuity.blocks import BlockContent, BlockLog, block_of
from backhaul_hub.continuity.examine import (
    Examined,
    MissingDictionaryError,
    UnreadableError,
    own_hash,
)
from backhaul_hub.continuity.examine_many import examine_many
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.repeats import Run, forks_from
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from backhaul_hub.uplink.audit import Audit, AuditFindings, require_gone
from backhaul_hub.uplink.block_store import BlockStore, forget_lanes
from backhaul_hub.uplink.consumer import Consumer
from backhaul_hub.uplink.device_words import WordBook
from backhaul_hub.uplink.dictionaries import Dictionaries, parts, refers_to
from backhaul_hub.uplink.dictionary_bounds import DictionaryKey
from backhaul_hub.uplink.hashes import MessageHashes
from backhaul_hub.uplink.lane_rows import ReadPosition, read_position, store_read
from backhaul_hub.uplink.quarantine import set_aside
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_BATCH_MESSAGES = 512
_POINTS_AT_ONCE = 1 << 18
_IDLE_S = 0.1


class UplinkReader:
    """Reads one UP stream from where hub.db says, for ever.

    Args:
        client: a connection in account HUB.
        dictionaries: what messages are packed against; one for all readers.
        consumers: told of every good message, in this order (see uplink/consumer.py).
        words: takes in what vehicles say of their lanes; one for all readers.
        unreadable: told of the device that has sent an unreadable message.
        expanded: told of each other message: its device, what it comes to, its bytes, and when it was
            stored (ns).
    """

    def __init__(
        self,
        stream: str,
        client: Client,
        api: JetStreamApi,
        continuity: Continuity,
        registry: Registry,
        dictionaries: Dictionaries,
        consumers: Sequence[Consumer] = (),
        words: WordBook | None = None,
        unreadable: Callable[[str], None] = lambda _: None,
        expanded: Callable[[str, Expansion, int, int], None] = lambda *_: None,
    ) -> None:
        self.stream = stream
        self.position = ReadPosition()
        self.caught_up = False
        """Whether all has been read that was in the stream at the start, or when it lost some."""
        self._reader = StoredReader(client, stream)
        self._api = api
        self._continuity = continuity
        self._registry = registry
        self._words = words or WordBook(continuity)
        self._dictionaries = dictionaries
        self._consumers = (dictionaries, *consumers)
        self._unreadable = unreadable
        self._expanded = expanded
        self._blocks = BlockStore(registry, stream)
        self._log = BlockLog()
        self._audit = Audit(stream, api, self._reader, self._blocks, dictionaries)
        self._audit_due = False
        self._last_is_there = False
        self._catch_up_to = 0
        self._thinned: set[LaneKey] = set()
        self.hashes = MessageHashes(client, stream, continuity, registry)
        self._judging: asyncio.Task[None] | None = None
        # Lanes in which something came again: others may be in another shard, where UP holds them.
        self._repeated: set[LaneKey] = set()

    async def run(self) -> None:
        """Read until cancelled; trouble with the server is logged once and waited out."""
        try:
            await self._run()
        finally:
            if self._judging is not None:
                self._judging.cancel()

    async def _run(self) -> None:
        self.position = await read_position(self._registry, self.stream)
        kinds = (HubError, NatsError, OSError)
        trouble = Trouble(
            log, "uplink_interrupted", *kinds, over="uplink_resumed", stream=self.stream
        )
        while True:
            async with trouble:
                await self._look()
                while not self._audit_due:
                    messages = await self._read()
                    trouble.end()
                    for part in parts(messages):
                        await self._take(part)
                    more = await self._take_up()
                    if not self.caught_up and self.position.seq >= self._catch_up_to:
                        self._note_caught_up()
                    if not messages and not more:
                        await asyncio.sleep(_IDLE_S)

    def note_state(self, info: Json) -> None:
        """Take in the stream's state: a loss while nothing came is noticed so."""
        self._audit_due = self._audit_due or self._audit.differs(info, self.position)

    async def _read(self) -> list[Stored]:
        """Return the next messages; none at the end, and none where an audit has become due."""
        known = self.position
        lo = known.seq if self._last_is_there else known.seq + 1
        messages = await self._reader.read(lo, _BATCH_MESSAGES + 1)
        if messages:
            await require_gone(self._api, self.stream, messages, lo, messages[-1].seq)
        if not self._last_is_there:
            return messages
        if messages and (messages[0].seq, messages[0].stored_ns) == (known.seq, known.stored_ns):
            return messages[1:]
        if await self._api.first_message(self.stream, known.seq) != (known.seq, known.stored_ns):
            self._audit_due = True
        # Else who answered is behind the stream's leader: the next answer may come from another.
        return []

    async def _take(self, messages: Sequence[Stored]) -> None:
        """Set garbage aside, count the rest, and store both with the new position."""
        examined = await self._examine(messages)
        async with self._registry.turn:
            # From here on nothing is read again, so nothing is counted twice.
            garbage = 0
            for message, said in examined:
                if isinstance(said, UnreadableError):
                    self._note_unreadable(message, said)
                    garbage += 1
                else:
                    held = self._tell(message, said)
                    place = (said.key, said.seq) if held else None
                    self._log.add(message.seq, message.stored_ns, place)
            self.position = replace(
                self.position,
                seq=messages[-1].seq,
                stored_ns=messages[-1].stored_ns,
                quarantined=self.position.quarantined + garbage,
            )
            self._last_is_there = True
            await self._store(self._blocks.put(self._log.take_changes()))
        for consumer in self._consumers:
            consumer.stored()
        self._judge_repeats()

    async def _examine(
        self, messages: Sequence[Stored]
    ) -> list[tuple[Stored, Examined | UnreadableError]]:
        """Examine messages, and copy to QUARANTINE those that nobody can read."""
        # From here on the dictionaries among them are kept: only then do their messages count as held.
        await self._dictionaries.prepare(messages)
        examined: list[tuple[Stored, Examined | UnreadableError]] = []
        points = 0
        pairs = [(message.subject, message.body) for message in messages]
        every = examine_many(pairs, self._dictionaries.find)
        for message, said in zip(messages, every, strict=True):
            try:
                if isinstance(said, UnreadableError):
                    raise said
                self._dictionaries.require_kept(said)
            except UnreadableError as error:
                examined.append((message, error))
                if self._dictionaries.is_copied(self.stream, error):
                    await set_aside(self._api, self.stream, self.position.created, message, error)
                continue
            examined.append((message, said))
            self._expanded(said.key.device, said.expansion, len(message.body), message.stored_ns)
            points += said.expansion.points
            if points > _POINTS_AT_ONCE:  # others wait: above all who keeps such a vehicle out
                points = 0
                await asyncio.sleep(0)
        return examined

    async def _take_up(self) -> bool:
        """Take up messages that were read before their dictionary came; return whether any were looked at."""
        row = self._dictionaries.awaited.next_here(self.stream)
        if row is None:
            return False
        found = await self._reader.read(row.low, _BATCH_MESSAGES, subject=f"up.{row.device}.>")
        messages = [each for each in found if each.seq <= min(row.high, self.position.seq)]
        wanted, missing = DictionaryKey(row.device, row.digest), False
        for part in parts([each for each in messages if refers_to(each) == wanted]):
            examined = await self._examine(part)
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
                await self._store(self._blocks.put([*blocks, *self._log.take_changes()]))
            for consumer in self._consumers:
                consumer.stored()
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

    def _judge_repeats(self) -> None:
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
            self._words.take(said.key, said.seq, said.word, message.stored_ns)
        if said.seq == 1:
            said = replace(said, stored_ns=message.stored_ns)
        for consumer in self._consumers:
            consumer.on_message(said, is_new)
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
            self._unreadable(device)
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

    async def _store(self, changes: Sequence[RowChange]) -> None:
        """Store the position and all changes on the way to it, trying until the disk takes it."""
        lanes = self._continuity.take_changed()
        changes = [
            *changes,
            *forget_lanes(self._continuity.take_forgotten()),
            *self._words.take_changes(),
            *(change for each in self._consumers for change in each.take_changes()),
        ]
        trouble = Trouble(log, "hub_db_does_not_write", RegistryError, stream=self.stream)
        while True:
            async with trouble:
                return await store_read(self._registry, self.stream, self.position, lanes, changes)

    async def _look(self) -> None:
        """Audit the stream, and stop counting on lost messages."""
        self._audit_due = False
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
            await self._store(changes)
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

    def _note_caught_up(self) -> None:
        """All of UP is read: messages ever seen and not held now are lost."""
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
