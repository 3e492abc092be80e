"""State of a bucket: whole now and then, changes between, and what workers remember of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_spark.errors import JobFailedError
from backhaul_spark.rules.kept import CHANGES_MAX, Bucket, Kept, Latest, Store
from tests.support import twin_batches
from tests.support.twin_batches import S

if TYPE_CHECKING:
    from backhaul_spark.rules.twins import Twins


class Cell(dict[Any, Any]):
    """A state of Spark's, in memory; counts the bytes that are read and written."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.read = self.written = 0

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self.get_(key)
        self.read += len(found[0]) if found and isinstance(found[0], bytes) else 0
        return found

    def get_(self, key: Any) -> Any:
        return dict.get(self, key)

    def get(self) -> tuple[Any, ...] | None:  # type: ignore[override]
        return self.getValue(())

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.written += len(value[0]) if isinstance(value[0], bytes) else 0
        self[key] = value

    def update(self, newValue: tuple[Any, ...]) -> None:  # type: ignore[override]
        self.updateValue((), newValue)


def new_store(of: Store | None = None) -> Store:
    """Return an empty store, or another one with the same in it."""
    return Store(*(Cell(part) for part in (of or ((),) * 4)))


class Fleet(twin_batches.Bucket):
    """Devices that say something in every batch, of which each is a store's next version."""

    def __init__(self) -> None:
        super().__init__({"twin": {"forget_after_days": 0.01}})
        self.random = random.Random(5)
        self.at_s = 0

    def batch_on(self, kept: Kept, store: Store, devices: int = 8, *, drop: bool = False) -> Bucket:
        """Run one batch as a worker does."""
        self.at_s += 60
        if drop:
            self.at_s += 10_000
        for device in self.random.sample(range(200), devices):
            self.say(
                f"D{device}", self.at_s, ("battery.temp", self.at_s, self.random.choice([20, 70]))
            )
        self.set(f"D{self.random.randrange(200)}", self.at_s, 40.0)
        bucket = kept.load(3, store)
        now_ns = twin_batches.T0 + self.at_s * S
        self.engine.take(bucket.twins, self.batch(), now_ns)
        if self.random.random() < 0.3 or drop:
            self.engine.tick(bucket.twins, now_ns, now_ns)
        kept.save(3, bucket, store, now_ns, self.at_s)
        return bucket


def content(twins: Twins) -> tuple[bytes, bytes]:
    return twins.pack(), twins.pack_names()


@pytest.mark.slow
def test_any_worker_goes_on_where_another_was() -> None:
    fleet = Fleet()
    store = new_store()
    workers = [Kept(fleet.plan) for _ in range(3)]
    for number in range(120):
        worker = fleet.random.choice(workers)
        bucket = fleet.batch_on(worker, store, devices=150 if number < 3 else 8, drop=number == 90)
        expected = content(bucket.twins)
        afresh = Kept(fleet.plan).load(3, store)
        assert content(afresh.twins) == expected
        assert afresh.latest == bucket.latest
    assert store.latest.get()[4] != 0  # type: ignore[index]  # not always the empty one


def test_a_batch_that_failed_is_not_remembered() -> None:
    """Saved by its worker, never committed by Spark: the batch is done again, by another one."""
    fleet = Fleet()
    first, second = Kept(fleet.plan), Kept(fleet.plan)
    store = new_store()
    for _ in range(4):
        fleet.batch_on(first, store)
    fleet.batch_on(first, new_store(store))
    assert content(first.load(3, store).twins) == content(second.load(3, store).twins)
    fleet.batch_on(first, new_store(store))
    fleet.batch_on(second, store)
    fleet.batch_on(second, store)
    expected = content(Kept(fleet.plan).load(3, store).twins)
    assert content(first.load(3, store).twins) == expected


def test_what_a_worker_puts_back_as_it_was_before_another_one_is_a_change() -> None:
    """Its own former state is not what its changes count from, once it has read the other's."""
    fleet = Fleet()
    store, first, second = new_store(), Kept(fleet.plan), Kept(fleet.plan)
    fleet.batch_on(first, store)

    def put(kept: Kept, untimely: int) -> None:
        bucket = kept.load(3, store)
        bucket.twins.devices["device"]["untimely"] = untimely
        kept.save(3, bucket, store, 1, 1)

    for kept, untimely in ((first, 5), (second, 6), (first, 5)):
        put(kept, untimely)
    assert set(Kept(fleet.plan).load(3, store).twins.devices["device"]["untimely"]) == {5}


def test_a_worker_that_stopped_halfway_forgets() -> None:
    fleet = Fleet()
    kept, store = Kept(fleet.plan), new_store()
    fleet.batch_on(kept, store)
    expected = content(Kept(fleet.plan).load(3, store).twins)
    kept.load(3, store).twins.devices["device"]["stored_ns"] = 1
    assert content(kept.load(3, store).twins) == expected


def test_little_is_read_and_written_while_little_changes() -> None:
    fleet = Fleet()
    kept, store = Kept(fleet.plan), new_store()
    for _ in range(2):
        fleet.batch_on(kept, store, devices=199)
    numbers, changes = store.numbers, store.changes
    assert isinstance(numbers, Cell)
    assert isinstance(changes, Cell)
    whole = len(numbers[()][0])
    numbers.read = numbers.written = changes.read = changes.written = 0
    for _ in range(CHANGES_MAX):
        fleet.batch_on(kept, store, devices=2)
    assert (numbers.read, changes.read) == (0, 0)
    assert numbers.written < 3 * whole  # and not CHANGES_MAX times
    assert 0 < changes.written < whole
    assert len(changes) <= CHANGES_MAX


def test_names_that_are_still_right_are_not_read_with_the_numbers() -> None:
    fleet = Fleet()
    store, stale, other = new_store(), Kept(fleet.plan), Kept(fleet.plan)
    fleet.batch_on(stale, store, devices=199)
    stale.save(3, stale.load(3, store), store, 1, 1)
    for at_s in range(2 * CHANGES_MAX):
        bucket = other.load(3, store)
        bucket.twins.devices["device"]["stored_ns"] += 1
        other.save(3, bucket, store, at_s, at_s)
    numbers, names = store.numbers, store.names
    assert isinstance(numbers, Cell)
    assert isinstance(names, Cell)
    numbers.read = names.read = 0
    found = content(stale.load(3, store).twins)
    assert numbers.read > 0
    assert names.read == 0
    assert found == content(Kept(fleet.plan).load(3, store).twins)


def test_a_batch_that_changes_nothing_writes_nothing() -> None:
    fleet = Fleet()
    kept, store = Kept(fleet.plan), new_store()
    before = fleet.batch_on(kept, store).latest
    bucket = kept.load(3, store)
    kept.save(3, bucket, store, before.until_ns, before.at_ms)
    assert bucket.latest == before


def test_a_checkpoint_without_changes_is_taken_over() -> None:
    fleet = Fleet()
    old, store = fleet.batch_on(Kept(fleet.plan), new_store()).twins, new_store()
    store.numbers.update((old.pack(), 7, 8))
    store.names.update((old.pack_names(),))
    kept = Kept(fleet.plan)
    bucket = kept.load(3, store)
    assert content(bucket.twins) == content(old)
    assert bucket.latest[-2:] == (7, 8)
    fleet.batch_on(kept, store, devices=1)
    assert content(kept.load(3, store).twins) == content(Kept(fleet.plan).load(3, store).twins)


def test_a_section_without_fields_changes_too() -> None:
    """`heads`, where no rule that is on has a threshold."""
    bucket = twin_batches.Bucket({"rules": {"temperature": {"enabled": False}}})
    assert bucket.twins.devices["heads"].dtype.itemsize == 0
    kept, store = Kept(bucket.plan), new_store()
    for at_s in range(3):
        bucket.say(f"D{at_s}", at_s, ("battery.temp", at_s, 20.0))
        bucket.say("D0", at_s, ("battery.temp", at_s, 21.0))
        here = kept.load(3, store)
        bucket.engine.take(here.twins, bucket.batch(), twin_batches.T0)
        kept.save(3, here, store, 0, 0)
        assert content(Kept(bucket.plan).load(3, store).twins) == content(here.twins)
    assert len(kept.load(3, store).twins.devices) == 3


@pytest.mark.parametrize("serial", [1, 2], ids=["wrong", "missing"])
def test_parts_that_do_not_belong_together_are_refused(serial: int) -> None:
    fleet = Fleet()
    store = new_store()
    kept = Kept(fleet.plan)
    while not (latest := Latest(*(store.latest.get() or ()))).serial > latest.whole > 0:
        fleet.batch_on(kept, store)
    store.latest.update(tuple(latest._replace(token=5, serial=latest.serial + serial - 1)))
    with pytest.raises(JobFailedError, match="bucket 3 is damaged"):
        Kept(fleet.plan).load(3, store)
