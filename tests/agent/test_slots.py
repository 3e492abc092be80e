"""What a slot holds and what is said of it, while heads change and connections end in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_agent.artifacts.jobs import NODE, STATE_KEY
from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.artifacts.partial_file import Part
from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.artifacts.transfer import CancelledJobError
from backhaul_agent.config import ArtifactsConfig, Config, DeviceConfig
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.sync.requests import value_of
from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.merge import Head, HeadKey, Heads
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from backhaul_agent.artifacts.jobs import Job
    from backhaul_agent.sync.requests import SetRequest

CONTENT = b"firmware"
VERSION = f"fw@{hashlib.sha256(CONTENT).hexdigest()}"
READY, EMPTY = "ready", "empty"


class Vehicle:
    """Slots between heads that we change and a directory; `meanwhile` happens during a commit."""

    def __init__(self, directory: Path) -> None:
        self.heads = Heads()
        self.meanwhile: Callable[[str], None] = lambda _: None
        self.hold: asyncio.Event | None = None
        self._time = 0
        config = Config(DeviceConfig("VID-001", "t"), artifacts=ArtifactsConfig(dir=str(directory)))
        self._store = ArtifactStore(config.artifacts, free=lambda _: 1 << 40)
        self._store.prepare()
        keeper: Any = SimpleNamespace(heads=self.heads)
        self.artifacts = Artifacts(
            config, FakeClock(), self._store, keeper, UplinkState(), self._write, "boot"
        )
        self.slots = self.artifacts.slots

    def tell(self, slot: str, version: str = "") -> None:
        """Tell a slot what to hold; without a version: nothing."""
        self._put(HeadKey("", NODE, slot), version, tombstone=int(not version))
        self.slots.look()

    def fill(self, *slots: str) -> None:
        """Have the slots' files where they belong, and that said."""
        for slot in slots:
            job = self.slots.jobs[slot]
            self.file(slot).touch()
            job.ready()
            self.slots.tell(job)

    def file(self, slot: str) -> Path:
        return self._store.slot(slot)

    def state(self, slot: str) -> str:
        """Return what stands in the slot's point, which the hub has."""
        head = self.heads.get(HeadKey("", NODE, slot, STATE_KEY))
        return "" if head is None else str(value_to_json(head.value)[0]["state"])

    async def _write(self, request: SetRequest) -> None:
        (point,) = request.points
        self.meanwhile(point.type)
        if self.hold is not None:
            await self.hold.wait()
        self._put(HeadKey("", NODE, point.type, point.key), value_of(point, 1000))

    def _put(self, key: HeadKey, value: Any, tombstone: int = 0) -> None:
        self._time += 1
        self.heads.put(key, Head(self._time, "", value, tombstone))


@pytest.fixture
def it(tmp_path: Path) -> Vehicle:
    return Vehicle(tmp_path)


@contextlib.contextmanager
def connected(it: Vehicle) -> Iterator[None]:
    """Report for as long as a connection lives."""
    reporting = asyncio.create_task(it.slots.report())
    try:
        yield
    finally:
        reporting.cancel()


async def test_a_slot_that_is_told_again_while_another_is_written_keeps_its_file(
    it: Vehicle,
) -> None:
    with connected(it):
        for slot in ("a", "b"):
            it.tell(slot, VERSION)
        it.fill("a", "b")
        await until(lambda: it.state("a") == it.state("b") == READY)
        told_again: list[str] = []

        def meanwhile(written: str) -> None:
            # Whichever comes second is told to hold the same again, before its turn has come.
            if not told_again:
                told_again.append("b" if written == "a" else "a")
                it.tell(told_again[0], VERSION)
                it.fill(told_again[0])

        it.meanwhile = meanwhile
        for slot in ("a", "b"):
            it.tell(slot)
        await until(lambda: EMPTY in (it.state("a"), it.state("b")))
        (slot,) = told_again
        # One more, so that all before it have had their turn.
        it.tell("c", VERSION)
        it.fill("c")
        await until(lambda: it.state("c") == READY)
        assert it.state(slot) == READY
        assert it.file(slot).exists()


async def test_what_a_connection_ended_in_the_middle_of_is_said_on_the_next(it: Vehicle) -> None:
    it.hold = asyncio.Event()
    begun: list[str] = []
    it.meanwhile = begun.append
    for slot in ("a", "b"):
        it.tell(slot, VERSION)
    with connected(it):
        it.fill("a", "b")
        await until(lambda: bool(begun))
    it.hold.set()
    with connected(it):
        await until(lambda: it.state("a") == it.state("b") == READY)


class Bringing:
    """A carrier that has the whole file at once."""

    async def find(self, _: object, job: Job) -> None:
        job.size = len(CONTENT)

    async def fetch(self, _talk: object, _job: Job, part: Part) -> None:
        part.append(CONTENT, 0.0)


@pytest.mark.parametrize("again", ["", VERSION, "no version"])
async def test_a_slot_that_is_emptied_while_its_file_is_moved_there_stays_empty(
    it: Vehicle, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    loop, nobody, finish = asyncio.get_running_loop(), cast("Any", None), Part.finish
    it.artifacts.transfers = cast("Any", Bringing())

    async def meanwhile() -> None:
        it.tell("a")
        await until(lambda: it.state("a") == EMPTY)
        if again:
            it.tell("a", again)

    def finish_late(part: Part, digest: bytes, target: Path) -> None:
        asyncio.run_coroutine_threadsafe(meanwhile(), loop).result()
        finish(part, digest, target)

    monkeypatch.setattr(Part, "finish", finish_late)
    it.tell("a", VERSION)
    job = it.slots.jobs["a"]
    with connected(it):
        # Told the same again, the file is what it wants; told what is no version, it keeps what it has.
        with contextlib.nullcontext() if again else pytest.raises(CancelledJobError):
            await it.artifacts._fetch(nobody, job)
        assert it.file("a").exists() == bool(again)
