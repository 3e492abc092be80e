"""Keep a bucket's twins between batches: in Spark's store, and in the worker that last had them. Executor.

The numbers of 100,000 devices are 40 MB. To read and write all of them with each batch costs Spark many
times what the rules cost. So a batch writes what it changed, and every so often the whole; and a worker
goes on with what it has in memory, once it has read what other workers have changed since.

What is in memory is believed only where its token is the one in the store. The token is a hash over the
whole and all changes since: after a batch that failed, and was done again elsewhere, it is another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from backhaul_spark.errors import JobFailedError
from backhaul_spark.rules.twins import Twins

if TYPE_CHECKING:
    from backhaul_spark.rules.plan import Plan

# The whole is written anew after so many batches at the latest, and when the changes outgrow it.
CHANGES_MAX = 16
_OUTGROWN = 2

NUMBERS = "packed binary, until_ns long, at_ms long"
NAMES = "packed binary"
SLOT, CHANGES = "slot int", "packed binary"
LATEST = (
    "serial long, whole long, whole_bytes long, change_bytes long, token long, names long, "
    "until_ns long, at_ms long"
)


class Value(Protocol):
    """One of Spark's value states."""

    def get(self) -> tuple[Any, ...] | None:
        """Return the stored value, None for nothing."""
        ...

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Keep another."""
        ...


class Values(Protocol):
    """One of Spark's map states."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the value stored under a key, None for nothing."""
        ...

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Keep another under a key."""
        ...


class Store(NamedTuple):
    """A bucket's part of Spark's store.

    `numbers`: the whole. `changes`: what each serial since has changed, in slot `serial % CHANGES_MAX`.
    `latest`: which serials these are. `names`: what is not numbers, always whole.
    """

    numbers: Value
    changes: Values
    names: Value
    latest: Value


class Latest(NamedTuple):
    """Where a bucket stands, as LATEST says.

    `serial`: counts what was saved; `whole`: that of `numbers`. `token`: stands for the numbers,
    `names` for the names. `until_ns`, `at_ms`: what the actor wants to know again.
    """

    serial: int = 0
    whole: int = 0
    whole_bytes: int = 0
    change_bytes: int = 0
    token: int = 0
    names: int = 0
    until_ns: int = 0
    at_ms: int = 0


@dataclass(slots=True)
class Bucket:
    """A bucket's twins, and their state in the store when they were last loaded or saved."""

    twins: Twins
    latest: Latest = field(default_factory=Latest)


class Kept:
    """The memory of one process: the buckets of one query."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._buckets: dict[int, Bucket] = {}

    def load(self, number: int, store: Store) -> Bucket:
        """Return a bucket as the store has it; a new one if it has none.

        It is forgotten here until it is saved: what a batch that fails has done to it is nothing.

        Raises:
            JobFailedError: the store's parts do not belong together.
        """
        here = self._buckets.pop(number, None)
        latest = _latest(store)
        if latest is None:
            return Bucket(Twins(self._plan))
        if here is None or not _followed(here, latest, store):
            here = self._whole(latest, store, here)
            if not _followed(here, latest, store):
                raise JobFailedError(f"the state of bucket {number} is damaged")
        if here.latest.names != latest.names:
            names = store.names.get()
            here.twins.unpack_names(bytes(names[0]) if names else here.twins.pack_names())
        here.latest = latest
        return here

    def save(self, number: int, bucket: Bucket, store: Store, until_ns: int, at_ms: int) -> None:
        """Write the changes since it was loaded."""
        twins, before = bucket.twins, bucket.latest
        changes = twins.pack_changes()
        names = before.names
        if twins.names_changed:
            packed = twins.pack_names()
            store.names.update((packed,))
            names, twins.names_changed = _token(0, packed), False
        after = before._replace(names=names, until_ns=until_ns, at_ms=at_ms)
        if changes:
            after = self._write(number, twins, changes, after, store)
        if after != before:
            store.latest.update(tuple(after))
        bucket.latest = after
        self._buckets[number] = bucket

    def _whole(self, latest: Latest, store: Store, before: Bucket | None) -> Bucket:
        """Read a bucket's numbers anew; the names in memory may still be right."""
        twins, names = Twins(self._plan), 0
        if before is not None:
            twins.names, twins.heads = before.twins.names, before.twins.heads
            twins.waiting = before.twins.waiting
            names = before.latest.names
        token = 0
        if found := store.numbers.get():
            whole = bytes(found[0])
            twins.unpack_numbers(whole)
            token = _token(0, whole)
        return Bucket(twins, Latest(latest.whole, token=token, names=names))

    def _write(self, number: int, twins: Twins, changes: bytes, at: Latest, store: Store) -> Latest:
        serial, change_bytes = at.serial + 1, at.change_bytes + len(changes)
        # Not all buckets in the same batch, which would be a long one.
        turn = (serial + number) % CHANGES_MAX == 0
        if turn or serial - at.whole >= CHANGES_MAX or change_bytes > _OUTGROWN * at.whole_bytes:
            whole = twins.pack()
            store.numbers.update((whole, at.until_ns, at.at_ms))
            return at._replace(serial=serial, whole=serial, whole_bytes=len(whole), change_bytes=0,
                               token=_token(0, whole))  # fmt: skip
        store.changes.updateValue((serial % CHANGES_MAX,), (changes,))
        token = _token(at.token, changes)
        return at._replace(serial=serial, change_bytes=change_bytes, token=token)


def _latest(store: Store) -> Latest | None:
    found = store.latest.get()
    if found is not None:
        return Latest(*found)
    numbers = store.numbers.get()
    if numbers is None:
        return None
    # A checkpoint of a version that wrote nothing but the whole.
    packed, until_ns, at_ms = numbers
    return Latest(token=_token(0, bytes(packed)), names=-1, until_ns=until_ns, at_ms=at_ms)


def _followed(here: Bucket, latest: Latest, store: Store) -> bool:
    """Bring the memory up to date; return whether it equals the store."""
    serial, token = here.latest.serial, here.latest.token
    if not latest.whole <= serial <= latest.serial:
        return False
    for each in range(serial + 1, latest.serial + 1):
        found = store.changes.getValue((each % CHANGES_MAX,))
        if found is None:
            return False
        changes = bytes(found[0])
        here.twins.apply(changes)
        token = _token(token, changes)
    if serial < latest.serial:
        here.twins.settle()
    return token == latest.token


def _token(before: int, packed: bytes) -> int:
    """Hash bytes, and the hash before them."""
    key = before.to_bytes(8, "little", signed=True)
    digest = blake2b(packed, digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little", signed=True)
