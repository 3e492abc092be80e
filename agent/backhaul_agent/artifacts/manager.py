"""Fetching and sending artifacts: one file at a time in each direction, for as long as the daemon lives.

Fetched is what slots are told to hold, and what programs ask for as long as they go on asking; sent is
what programs have handed over, until the hub says that it has stored it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from random import SystemRandom
from typing import Any

import structlog
from nats.aio.client import Client

from backhaul_agent.artifacts.jobs import NODE, FileState, Job, next_due_s, next_job
from backhaul_agent.artifacts.partial_file import Part, has_digest
from backhaul_agent.artifacts.room import ArtifactRoom
from backhaul_agent.artifacts.slots import Slots
from backhaul_agent.artifacts.store import ArtifactStore, Waiting
from backhaul_agent.artifacts.transfer import BlobLink, CancelledJobError, Talk, Transfers
from backhaul_agent.cancellation import heard
from backhaul_agent.commit.heads import Changed, HeadKeeper
from backhaul_agent.config import Config
from backhaul_agent.errors import ArtifactError
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.sync.requests import SetRequest
from backhaul_runtime.clock import Clock

PREPARE_RETRY_S = 5.0
LEASE_S = 60.0  # how long a file is fetched, or kept, for a program that does not ask any more
SENT_MAX = 32  # uploads that are done and still known
log = structlog.get_logger("artifacts")


class Artifacts:
    """All artifacts of this vehicle.

    Args:
        write: writes configuration on this vehicle, as ``agent.set`` does.
        boot: names this run of the machine.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: ArtifactStore,
        keeper: HeadKeeper,
        uplink: UplinkState,
        write: Callable[[SetRequest], Awaitable[object]],
        boot: str,
    ) -> None:
        self.store = store
        self.room = ArtifactRoom(store, self.wanted)
        self.prepared = asyncio.Event()
        self._refused = False  # by the disk, when the directory was to be prepared
        self.slots = Slots(keeper, store, write, frozenset(config.artifacts.slots))
        self.gets: dict[str, Job] = {}
        self.uploads: dict[str, Job] = {}
        self.transfers = Transfers(clock, uplink, store.require_free)
        self._leases_s: dict[str, float] = {}
        self._config = config
        self._clock = clock
        self._boot = boot
        self._chance = SystemRandom()
        self._news: list[asyncio.Event] = []
        uplink.on_up.append(self._on_up)

    def on_heads(self, changed: list[Changed]) -> None:
        """Learn that heads have changed: a slot may be told something else."""
        if self.prepared.is_set() and any(key.node == NODE and not key.key for key, _ in changed):
            self.slots.look()
            self._wake()

    @property
    def moving(self) -> int | None:
        """Return how many bytes have moved so far; None where nothing wants the link.

        Until the directory was tried nobody knows whether something does.
        """
        now_s = self._clock.monotonic_s()
        unknown = not (self.prepared.is_set() or self._refused)
        wanted = unknown or any(job.due(now_s) for job in self._jobs())
        return self.transfers.moved_bytes if wanted else None

    def status(self) -> dict[str, Any]:
        """Return all there is, for programs on the vehicle."""
        now_s = self._clock.monotonic_s()
        kinds = {"slot": self.slots.jobs, "get": self.gets, "upload": self.uploads}
        files = [
            {"kind": kind, "id": number} | job.describe(now_s)
            for kind, jobs in kinds.items()
            for number, job in jobs.items()
        ]
        return {
            "directory": str(self.store.directory),
            "files": files,
            "moved_bytes": self.transfers.moved_bytes,
            "asked_bytes": self.transfers.asked_bytes,
            "promised_bytes": self.room.promised_bytes(),
        }

    def now_s(self) -> float:
        """Return the time by which jobs are due."""
        return self._clock.monotonic_s()

    def wanted(self) -> set[Path]:
        """Return the files and parts that must not be removed to make room."""
        jobs = self._jobs()
        return {self.store.part(job.digest) for job in jobs} | {
            job.path for job in jobs if job.path
        }

    def get(self, name: str) -> Job:
        """Have a file fetched for a program; it must go on asking."""
        self._leases_s[name] = self._clock.monotonic_s() + LEASE_S
        if name not in self.gets:
            self.gets[name] = Job(name, b"", None)
            self._wake()
        return self.gets[name]

    def end_get(self, name: str) -> Job | None:
        """Let go of a file that a program asked for; a part of it stays. Return its job."""
        self._leases_s.pop(name, None)
        job = self.gets.pop(name, None)
        if job is not None:
            job.cancelled = True
        return job

    def to_send(self, number: str, waiting: Waiting) -> Job:
        """Have a file sent that the store keeps."""
        job = Job(waiting.name, waiting.digest, self.store.upload(number), waiting.size)
        self.uploads[number] = job
        self._wake()
        return job

    def end_upload(self, number: str) -> bool:
        """Give up an upload; return whether there was one. Its file is the caller's to drop."""
        job = self.uploads.pop(number, None)
        if job is not None:
            job.cancelled = True
            self.room.forget(self.store.upload(number))
        return job is not None

    async def run(self, client: Client) -> None:
        """Fetch and send for as long as the connection lives (the caller cancels)."""
        link = BlobLink(self._config, client, self._chance.getrandbits(48))
        await link.start()
        await self._prepare()
        self.slots.look()
        self._news = [asyncio.Event(), asyncio.Event()]
        async with asyncio.TaskGroup() as group:
            group.create_task(self.slots.report())
            group.create_task(self._work(link, self._news[0], self._to_fetch, self._fetch))
            group.create_task(self._work(link, self._news[1], self._to_send, self._send))
            group.create_task(self._end_leases())

    async def _prepare(self) -> None:
        """Take up the jobs of an earlier run; return when that could be done."""
        while not self.prepared.is_set():
            try:
                waiting = await asyncio.to_thread(self.store.prepare)
            except OSError as error:
                self._refused = True
                log.warning(
                    "artifacts_unavailable", directory=str(self.store.directory), error=str(error)
                )
                await asyncio.sleep(PREPARE_RETRY_S)
                continue
            for number, each in waiting.items():
                self.to_send(number, each)
            self.prepared.set()

    async def ready(self, wait_s: float) -> bool:
        """Tell whether the directory can be used; until that was tried, wait so long for it.

        Not after: programs are answered one after another, and would wait for one another.
        """
        if not self._refused:
            await heard(self.prepared, wait_s)
        return self.prepared.is_set()

    def _jobs(self) -> list[Job]:
        return [*self.gets.values(), *self.slots.jobs.values(), *self.uploads.values()]

    def _to_fetch(self) -> Iterable[Job]:
        return [*self.gets.values(), *self.slots.jobs.values()]

    def _to_send(self) -> Iterable[Job]:
        return list(self.uploads.values())

    def _wake(self) -> None:
        for news in self._news:
            news.set()

    def _on_up(self) -> None:
        for job in self._jobs():
            job.at_once()
        self._wake()

    async def _work(
        self,
        link: BlobLink,
        news: asyncio.Event,
        jobs: Callable[[], Iterable[Job]],
        do: Callable[[Talk, Job], Awaitable[None]],
    ) -> None:
        """Do one job after another, for ever."""
        while True:
            news.clear()
            job = next_job(jobs(), self._clock.monotonic_s())
            if job is None:
                await self._pause(news, next_due_s(jobs()))
                continue
            try:
                with link.talk() as talk:
                    await do(talk, job)
                job.ready()
                log.info("artifact", name=job.name, bytes=job.size)
            except CancelledJobError:
                continue
            except (ArtifactError, OSError) as error:
                code = error.code if isinstance(error, ArtifactError) else "disk"
                job.failed(self._clock.monotonic_s(), str(error), self._chance.random, code)
                if any(job is each for each in self.gets.values()):
                    job.digest, job.path = b"", None  # perhaps there is another version by then
                log.warning("artifact_not_moved", name=job.name, error=str(error), tries=job.tries)
            self.slots.tell(job)

    async def _pause(self, news: asyncio.Event, due_s: float | None) -> None:
        wait_s = None if due_s is None else max(0.05, due_s - self._clock.monotonic_s())
        await heard(news, wait_s)

    async def _end_leases(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 10)
            now_s = self._clock.monotonic_s()
            for name in [name for name, end_s in self._leases_s.items() if end_s < now_s]:
                job = self.end_get(name)
                if job is not None and job.path is not None:
                    await asyncio.to_thread(job.path.unlink, missing_ok=True)

    async def _fetch(self, talk: Talk, job: Job) -> None:
        """Bring one file here, or go on with it."""
        here = job.path
        if here is not None and await asyncio.to_thread(has_digest, here, job.digest):
            job.size = here.stat().st_size
            return
        job.state, job.error = FileState.MOVING, ""
        await self.transfers.find(talk, job)
        self.slots.tell(job)
        target = job.path = job.path or self.store.fetched(job.digest)
        if await asyncio.to_thread(has_digest, target, job.digest):
            return
        try:
            part = await self._open_part(job)
        except BaseException:
            self.room.release(self.store.part(job.digest))
            raise
        try:
            await self.transfers.fetch(talk, job, part)
            if job.cancelled:
                raise CancelledJobError
            job.state = FileState.CHECKING
            await asyncio.to_thread(part.finish, job.digest, target)
            kept = self.slots.keeps(target) or any(each.path == target for each in self._to_fetch())
            if job.cancelled and not kept:
                await asyncio.to_thread(target.unlink, missing_ok=True)
                raise CancelledJobError  # while it was moved into place
        finally:
            part.close()
            self.room.release(part.path)

    async def _open_part(self, job: Job) -> Part:
        path = self.store.part(job.digest)
        await self.room.promise(path, job.size)
        part = await asyncio.to_thread(Part.open, path, job.size, self._boot)
        job.moved = part.held
        return part

    async def _send(self, talk: Talk, job: Job) -> None:
        """Send one file, or go on with it."""
        assert job.path is not None
        job.state, job.error = FileState.MOVING, ""
        await self.transfers.send(talk, job, job.path)
        jobs = list(self.uploads.items())
        place = next((at for at, (_, each) in enumerate(jobs) if each is job), -1)
        for number, each in jobs[: place + 1]:
            # What was handed over before it, under the same name, it would have replaced by now.
            if each is job or (each.open and each.name == job.name):
                each.ready()
                self.room.forget(self.store.upload(number))
                await asyncio.to_thread(self.store.drop_upload, number)
        sent = [number for number, each in self.uploads.items() if not each.open]
        for number in sent[: max(0, len(sent) - SENT_MAX)]:
            del self.uploads[number]
