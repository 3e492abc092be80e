"""Vehicles' dictionaries: kept in hub.db and in the stream DICT, and looked up where messages come in.

A vehicle packs messages against a dictionary once the hub has confirmed the message that carried it. So the reader of
UP has it acknowledged by DICT, then committed in hub.db, and only then counts that message as held. Messages whose
dictionary is not here wait in UP (uplink/awaited.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from backhaul_codec import CodecError, peek
from backhaul_codec.kinds import DICTIONARY
from backhaul_codec.subjects import (
    DICTIONARY_STREAM,
    SubjectError,
    parse_uplink,
    stored_dictionary_subject,
)
from backhaul_codec.wire.dictionaries import (
    digest_in,
    encode_dictionary,
    is_packed,
    read_dictionary,
)
from backhaul_hub.continuity.examine import Examined, MissingDictionaryError, UnreadableError
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import Stored
from backhaul_hub.shards import up_name
from backhaul_hub.uplink.awaited import COPIED_MAX, Awaited, AwaitedBook
from backhaul_hub.uplink.dictionary_bounds import (
    KEPT_MAX,
    REFERRED_MAX,
    DictionaryKey,
    choose,
    is_full,
)
from backhaul_runtime.clock import Clock
from backhaul_runtime.jetstream import stamp_ns

log = structlog.get_logger(__name__)

CACHE_BYTES_MAX = 128 << 20
"""Of dictionaries in memory: those of all vehicles come to more."""
_AT_ONCE = 256
_INFLATED_BYTES_MAX = 32 << 20
_USE_NOTED_NS = 3600 * 1_000_000_000
_REFUSED_SHOWN_NS = 86_400 * 1_000_000_000
_PUT = "INSERT OR REPLACE INTO dictionary VALUES (?, ?, ?, ?, ?)"
_DROP = "DELETE FROM dictionary WHERE device = ? AND digest = ?"
_USED = "UPDATE dictionary SET used_ns = max(used_ns, ?) WHERE device = ? AND digest = ?"


class Dictionaries:
    """Keeps the dictionaries of all vehicles; one for all readers of UP. A consumer, to learn which are used.

    Args:
        shards: of UP.
        bytes_max: of dictionaries in memory.
    """

    def __init__(
        self,
        api: JetStreamApi,
        registry: Registry,
        clock: Clock,
        *,
        shards: int = 1,
        bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        self.awaited = AwaitedBook()
        self.on_held: Callable[[LaneKey, int], None] = lambda *_: None
        """Told which message brought a new dictionary, as soon as it is held: its vehicle waits for that word."""
        self._new: set[DictionaryKey] = set()
        """Those whose messages are yet to count as held."""
        self._held: list[tuple[LaneKey, int]] = []
        self._refused: dict[str, int] = {}
        """When a dictionary of a device was refused last, for want of room (ns since the Unix epoch)."""
        self._api = api
        self._registry = registry
        self._clock = clock
        self._shards = [up_name(shard) for shard in range(shards)]
        self._bytes_max = bytes_max
        self._bytes = 0
        self._cache: OrderedDict[DictionaryKey, bytes] = OrderedDict()
        self._noted_ns: dict[DictionaryKey, int] = {}
        """Of those in the cache: when their use was noted last."""
        self._used: dict[DictionaryKey, int] = {}
        self._changing = asyncio.Lock()

    async def begin(self) -> None:
        """Read in hub.db which are awaited, and have hub.db and DICT hold the same.

        Raises:
            HubError: hub.db or the server refuses, or does not answer.
        """
        rows = await self._registry.fetch("SELECT * FROM awaited_dictionary")
        self.awaited.restore(Awaited(row[0], bytes.fromhex(row[1]), *row[2:]) for row in rows)
        await self.reconcile()
        await self._look_for_awaited()

    async def reconcile(self) -> None:
        """Publish the dictionaries that DICT lacks, and take in those that hub.db lacks.

        Raises:
            HubError: hub.db or the server refuses, or does not answer.
        """
        there = await self._in_stream()
        rows = await self._registry.fetch("SELECT device, digest FROM dictionary")
        known = {DictionaryKey(device, bytes.fromhex(digest)) for device, digest in rows}
        lost, unknown = sorted(known - there), sorted(there - known)
        for some in _pieces(lost):
            found = await self._read(some)
            await self._publish({key: body for key, (body, _) in found.items()})
        if lost:
            log.warning("dictionaries_published_again", dictionaries=len(lost))
        for some in _pieces(unknown):
            bodies = await asyncio.gather(*map(self._from_stream, some))
            await self.keep({key: body for key, body in zip(some, bodies, strict=True) if body})
        if unknown:
            log.warning("dictionaries_taken_from_stream", dictionaries=len(unknown))

    async def look(self) -> None:
        """Publish the dictionaries that DICT has lost: its readers, the jobs, know of no other place.

        Raises:
            HubError: hub.db or the server refuses, or does not answer.
        """
        [(known,)] = await self._registry.fetch("SELECT count(*) FROM dictionary")
        if (await self._api.info(DICTIONARY_STREAM))["state"]["messages"] < known:
            await self.reconcile()

    async def prepare(self, messages: Iterable[Stored]) -> None:
        """Have the dictionaries of these messages at hand, as far as the hub has them; keep those among the messages.

        Raises:
            HubError: hub.db or the server refuses, or does not answer.
        """
        messages = list(messages)
        wanted = dict.fromkeys(key for each in messages if (key := refers_to(each)) is not None)
        await self._load(wanted)
        if brought := dict(filter(None, map(self._brought, messages))):
            await self.keep(brought)
            self._new |= brought.keys() & self._cache.keys()

    def find(self, device: str, digest: bytes) -> bytes | None:
        """Return a dictionary that was made ready (`prepare`), None where the hub does not have it."""
        key = DictionaryKey(device, digest)
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
        return found

    async def keep(self, new: Mapping[DictionaryKey, bytes]) -> None:
        """Have DICT, then hub.db hold dictionaries; those beyond a vehicle's bound are refused.

        Raises:
            HubError: one of them refuses, or does not answer; what is kept then is whole.
        """
        async with self._changing:
            now_ns = self._clock.now_ns()
            known = await self._uses({key.device for key in new})
            coming = Counter(key.device for key in new)
            full = [device for device, uses in known.items() if is_full(len(uses), coming[device])]
            oldest_ns = {device: await self._oldest_ns(device, now_ns) for device in full}
            choice = choose(new, known, oldest_ns, now_ns)
            await self._publish({key: new[key] for key in choice.keep})
            put = [(key.device, key.digest.hex(), new[key], now_ns, now_ns) for key in choice.keep]
            drop = [(key.device, key.digest.hex()) for key in choice.drop]
            if put or drop:
                await self._registry.write([RowChange(_PUT, put), RowChange(_DROP, drop)])
            for key in choice.drop:
                self._forget(key)
                await self._api.purge(DICTIONARY_STREAM, filter=stored_dictionary_subject(*key))
            for key, body in new.items():
                if key in choice.refuse:
                    log.error("device_beyond_bounds", device=key.device, bound="dictionaries")
                    self._refused[key.device] = now_ns
                else:
                    self._enter(key, body)
                    self.awaited.came(*key)

    def require_kept(self, said: Examined) -> None:
        """Refuse a message that brings a dictionary for which there was no room: it must not be confirmed.

        Raises:
            MissingDictionaryError: it does.
        """
        if said.uplink.kind is DICTIONARY:
            key = DictionaryKey(said.uplink.device, bytes.fromhex(said.uplink.key or ""))
            if key not in self._cache:
                why = f"{KEPT_MAX} dictionaries are in use already, or {REFERRED_MAX} are kept"
                raise MissingDictionaryError(*key, why, brought=True)

    def is_copied(self, stream: str, error: UnreadableError) -> bool:
        """Tell whether a message goes to QUARANTINE: of those that wait for one dictionary the first alone."""
        if not isinstance(error, MissingDictionaryError) or error.brought:
            return True
        return self.awaited.count(error.device, error.digest, stream) < COPIED_MAX

    def waits(self, stream: str, seq: int, error: UnreadableError) -> bool:
        """Take in a message that cannot be read; return whether it waits for a dictionary."""
        if not isinstance(error, MissingDictionaryError) or error.brought:
            return False
        now_ns = self._clock.now_ns()
        return self.awaited.note(error.device, error.digest, stream, seq, now_ns) > 0

    def beyond_bounds(self) -> dict[str, str]:
        """Return which vehicles had more dictionaries in use than the hub keeps, within a day, in words."""
        since_ns = self._clock.now_ns() - _REFUSED_SHOWN_NS
        self._refused = {device: ns for device, ns in self._refused.items() if ns >= since_ns}
        why = f"{KEPT_MAX} are in use, or messages in UP need {REFERRED_MAX}"
        return dict.fromkeys(self._refused, why)

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in which dictionary a message was packed against, or that it brought a new one."""
        if said.uplink.kind is DICTIONARY:
            brought = DictionaryKey(said.key.device, bytes.fromhex(said.uplink.key or ""))
            if brought in self._new:
                self._new.discard(brought)
                self._held.append((said.key, said.seq))
        if said.dictionary is None:
            return
        key, now_ns = DictionaryKey(said.key.device, said.dictionary), self._clock.now_ns()
        if key in self._cache and now_ns - self._noted_ns.get(key, 0) >= _USE_NOTED_NS:
            self._noted_ns[key] = self._used[key] = now_ns

    def take_changes(self) -> Sequence[RowChange]:
        """Return the rows that say when dictionaries were used, and which are awaited."""
        used, self._used = self._used, {}
        rows = [(ns, key.device, key.digest.hex()) for key, ns in used.items()]
        return [RowChange(_USED, rows), *self.awaited.take_changes()]

    def stored(self) -> None:
        """Tell which messages that brought a new dictionary are held."""
        held, self._held = self._held, []
        for lane, seq in held:
            self.on_held(lane, seq)

    def _brought(self, message: Stored) -> tuple[DictionaryKey, bytes] | None:
        """Return the dictionary in a message that brings one which is not in memory, None for any other."""
        if ".d." not in message.subject:
            return None
        try:
            place = parse_uplink(message.subject)
            if place.kind is not DICTIONARY or place.key is None:
                return None
            key = DictionaryKey(place.device, bytes.fromhex(place.key))
            return None if key in self._cache else (key, read_dictionary(message.body, key.digest))
        except (SubjectError, CodecError):
            return None  # `examine` says why

    async def _load(self, wanted: Iterable[DictionaryKey]) -> None:
        missing = [key for key in wanted if key not in self._cache]
        for some in _pieces(missing):
            for key, (body, used_ns) in (await self._read(some)).items():
                self._enter(key, body)
                self._noted_ns[key] = used_ns
        for key in wanted:
            if key in self._cache:
                self._cache.move_to_end(key)

    async def _read(self, some: Sequence[DictionaryKey]) -> dict[DictionaryKey, tuple[bytes, int]]:
        pairs = msgspec.json.encode([(key.device, key.digest.hex()) for key in some]).decode()
        rows = await self._registry.fetch(
            "SELECT device, digest, body, used_ns FROM json_each(?) AS wanted"
            " JOIN dictionary ON device = wanted.value ->> 0 AND digest = wanted.value ->> 1",
            (pairs,),
        )
        return {
            DictionaryKey(device, bytes.fromhex(digest)): (body, used_ns)
            for device, digest, body, used_ns in rows
        }

    async def _uses(self, devices: Iterable[str]) -> dict[str, dict[bytes, int]]:
        """Return when each dictionary of these devices was used last."""
        found: dict[str, dict[bytes, int]] = {device: {} for device in devices}
        for device in found:
            rows: list[Any] = await self._registry.fetch(
                "SELECT digest, used_ns FROM dictionary WHERE device = ?", (device,)
            )
            found[device] = {bytes.fromhex(digest): used_ns for digest, used_ns in rows}
        return found

    async def _oldest_ns(self, device: str, now_ns: int) -> int:
        """Return when the oldest message of a device that UP holds was stored; now if UP holds none."""
        found = [
            await self._api.message(shard, seq=1, next_by_subj=f"up.{device}.>")
            for shard in self._shards
        ]
        return min((stamp_ns(message.time) for message in found if message), default=now_ns)

    async def _publish(self, some: Mapping[DictionaryKey, bytes]) -> None:
        for keys in _pieces(list(some)):
            answers = await asyncio.gather(
                *(
                    self._api.publish(stored_dictionary_subject(*key), encode_dictionary(some[key]))
                    for key in keys
                ),
                return_exceptions=True,
            )
            for error in answers:
                if isinstance(error, BaseException):
                    raise error

    async def _in_stream(self) -> set[DictionaryKey]:
        found: set[DictionaryKey] = set()
        for subject in await self._api.subjects(DICTIONARY_STREAM, "dict.>"):
            _, device, digest = subject.split(".")
            found.add(DictionaryKey(device, bytes.fromhex(digest)))
        return found

    async def _from_stream(self, key: DictionaryKey) -> bytes | None:
        subject = stored_dictionary_subject(*key)
        message = await self._api.message(DICTIONARY_STREAM, last_by_subj=subject)
        try:
            return message and read_dictionary(message.data, key.digest)
        except CodecError as error:
            log.warning("dictionary_not_readable", device=key.device, error=str(error))
            return None

    async def _look_for_awaited(self) -> None:
        """Take up the messages that wait for dictionaries that are here: the control plane ended before it did."""
        for some in _pieces([DictionaryKey(each.device, each.digest) for each in self.awaited]):
            for key in await self._read(some):
                self.awaited.came(*key)

    def _enter(self, key: DictionaryKey, body: bytes) -> None:
        self._forget(key)
        self._cache[key] = body
        self._bytes += len(body)
        while self._bytes > self._bytes_max and len(self._cache) > 1:
            self._forget(next(iter(self._cache)))

    def _forget(self, key: DictionaryKey) -> None:
        body = self._cache.pop(key, None)
        self._noted_ns.pop(key, None)
        if body is not None:
            self._bytes -= len(body)


def refers_to(message: Stored) -> DictionaryKey | None:
    """Return the dictionary that a message of UP is packed against, None where it needs none."""
    if not is_packed(message.body):
        return None
    try:
        digest = digest_in(message.body)
    except CodecError:
        return None
    return None if digest is None else DictionaryKey(message.subject.split(".", 2)[1], digest)


def parts(messages: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
    """Yield messages in parts that fit the memory: of packed ones a few kilobytes may be 16 MiB each."""
    start = size = 0
    for at, each in enumerate(messages):
        more = _inflated(each)
        if size and size + more > _INFLATED_BYTES_MAX:
            yield messages[start:at]
            start, size = at, 0
        size += more
    if start < len(messages):
        yield messages[start:]


def _inflated(message: Stored) -> int:
    if not is_packed(message.body):
        return 0
    try:
        return peek(message.body).raw_len
    except CodecError:
        return 0


def _pieces(keys: Sequence[DictionaryKey]) -> Iterator[Sequence[DictionaryKey]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]
