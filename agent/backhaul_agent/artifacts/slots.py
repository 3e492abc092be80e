"""Slots between heads and jobs: each slot's wish, and the report of its file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import structlog

from backhaul_agent.artifacts.jobs import NODE, STATE_KEY, FileState, Job, read_version, wishes
from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.errors import RefusedError
from backhaul_agent.sync.requests import PointRequest, SetRequest
from backhaul_codec.state.json_values import value_to_json

REPORT_RETRY_S = 5.0
log = structlog.get_logger("artifacts")


class Slots:
    """The slots of this vehicle.

    Args:
        write: writes configuration on this vehicle, as ``agent.set`` does.
        allowed: the slots that are filled; any, where this is empty.
    """

    def __init__(
        self,
        keeper: HeadKeeper,
        store: ArtifactStore,
        write: Callable[[SetRequest], Awaitable[object]],
        allowed: Collection[str],
    ) -> None:
        self.jobs: dict[str, Job] = {}
        self._keeper = keeper
        self._store = store
        self._write = write
        self._allowed = allowed
        self._reports: dict[str, dict[str, Any]] = {}
        self._unreported = asyncio.Event()

    def look(self) -> None:
        """Bring the jobs in line with the slots' wishes."""
        told = wishes(self._keeper.heads, self._allowed)
        for slot, value in told.items():
            try:
                name, digest = read_version(value)
            except ValueError as error:
                self._forget(slot)
                self._say(slot, {"state": str(FileState.FAILED), "error": str(error)})
                continue
            job = self.jobs.get(slot)
            if job is None or (job.name, job.digest) != (name, digest):
                self._forget(slot)
                self.jobs[slot] = Job(name, digest, self._store.slot(slot))
        for slot in (self.jobs.keys() | self._reported().keys()) - told.keys():
            self._forget(slot)
            self._say(slot, {"state": str(FileState.EMPTY)})

    def keeps(self, path: Path) -> bool:
        """Tell whether a slot may keep this file: it has a wish, even one that names no version."""
        told = wishes(self._keeper.heads, self._allowed)
        return any(self._store.slot(slot) == path for slot in told)

    def tell(self, job: Job) -> None:
        """Say how a job stands, if it is a slot's."""
        for slot, each in self.jobs.items():
            if each is job:
                self._say(slot, job.report())

    async def report(self) -> None:
        """Write the state of slots into their points, for ever (the caller cancels)."""
        self._unreported.set()  # the connection before may have ended in the middle of this
        while True:
            await self._unreported.wait()
            self._unreported.clear()
            for slot in list(self._reports):
                said = self._reports[slot]  # now: while others were written it may have changed
                try:
                    await self._report_one(slot, said)
                except (RefusedError, OSError) as error:
                    log.warning("slot_not_reported", slot=slot, error=str(error))
                    await asyncio.sleep(REPORT_RETRY_S)
                    self._unreported.set()
                    continue
                if self._reports.get(slot) is said:
                    del self._reports[slot]

    async def _report_one(self, slot: str, said: dict[str, Any]) -> None:
        if said["state"] == FileState.EMPTY:
            if slot in self.jobs:
                return  # told another file meanwhile: what becomes of that is said instead
            self._remove(slot)
        if self._reported().get(slot) != said:
            point = PointRequest(slot, STATE_KEY, said, "json")
            await self._write(SetRequest(NODE, [point]))

    def _remove(self, slot: str) -> None:
        # Not in a thread: what is told meanwhile must not find the file, and lose it then.
        self._store.slot(slot).unlink(missing_ok=True)

    def _forget(self, slot: str) -> None:
        if (job := self.jobs.pop(slot, None)) is not None:
            job.cancelled = True

    def _say(self, slot: str, said: dict[str, Any]) -> None:
        self._reports[slot] = said
        self._unreported.set()

    def _reported(self) -> dict[str, Any]:
        """Return the report last written of each slot."""
        return {
            key.type: value_to_json(head.value)[0]
            for key, head in self._keeper.heads.of_node(NODE).items()
            if key.key == STATE_KEY and not key.parent and not head.deleted
        }
