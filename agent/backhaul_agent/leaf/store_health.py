"""Whether the leaf server can still write its streams: asked now and then, and told clearly.

nats-server 2.15 never writes a stream again once a write of it has failed, not even when the disk
has space again, and it does not answer appends to it at all; reading, and everything else, goes
on. A reload changes nothing, a restart heals it and loses nothing that was stored. So the agent,
whose ledger keeps everything meanwhile, says that the server must be restarted; on a vehicle
`backhaul-leaf-check.timer` does it (deploy/systemd, docs/budget.md).

Where the stream that failed is one that the server itself fills from a source, as it does IN, it ends
JetStream altogether. All else goes on, and nothing of JetStream is answered any more.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError

if TYPE_CHECKING:
    from backhaul_agent.leaf.jetstream import JetStream

LOOK_S = 10.0
UNANSWERED_MAX = 3  # in a row: one may have come while the server had other things to do
SILENT = "JetStream"  # stands for all streams, none of which is called that
NO_SUCH_SEQ = 1 << 62  # deleting it does nothing; a stream that cannot write says so instead
DELETE_FAILED = 10057
NOT_THERE = ("no message found", "stream store EOF")
FREE_BYTES_MIN = 16 << 20  # a server that is started again should get on for a while
_PLACE = re.compile(r"(/[^:\"]*)[:\"]")
log = structlog.get_logger("leaf")


class LeafStore:
    """Asks after streams. ``failed``: by stream, the server's error."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.failed: dict[str, str] = {}
        self._streams = list(streams)

    async def run(self, jetstream: JetStream) -> None:
        """Look for as long as the connection lives (the caller cancels)."""
        unanswered = 0
        try:
            while True:
                for stream in self._streams:
                    try:
                        self._note(stream, await self._look(jetstream, stream))
                        unanswered = 0
                    except (NatsError, OSError):
                        unanswered += 1  # once says nothing about the disk
                    ended = unanswered >= UNANSWERED_MAX
                    self._note(SILENT, "no answer, though the server is there" if ended else "")
                await asyncio.sleep(LOOK_S)
        finally:
            self.failed.clear()  # the next server may be a healthy one

    @property
    def error(self) -> str:
        """Return the error and the remedy, for people; nothing where all is well."""
        for stream, said in self.failed.items():
            return f"the leaf server cannot write {stream}: {said}; restart it when that is mended"
        return ""

    def status(self) -> dict[str, Any]:
        """Return the leaf's part of the status."""
        return {"failed_streams": dict(self.failed)}

    async def _look(self, jetstream: JetStream, stream: str) -> str:
        request = {"seq": NO_SUCH_SEQ, "no_erase": True}
        try:
            await jetstream.request(f"STREAM.MSG.DELETE.{stream}", request)
        except JetStreamError as error:
            if error.err_code == DELETE_FAILED and error.description not in NOT_THERE:
                return error.description
        return ""

    def _note(self, stream: str, said: str) -> None:
        if said and stream not in self.failed:
            log.error("leaf_store_failed", stream=stream, error=said)
        if not said and stream in self.failed:
            log.info("leaf_store_writes_again", stream=stream)
        if said:
            self.failed[stream] = said
        else:
            self.failed.pop(stream, None)


def free_bytes(path: Path) -> int:
    """Return the free bytes on the file system of a path, or of its nearest directory above."""
    for place in [path, *path.parents]:
        try:
            found = os.statvfs(place)
        except OSError:
            continue
        return found.f_bavail * found.f_frsize
    return 0


def needs_restart(
    failed: dict[str, str],
    free: Callable[[Path], int] = free_bytes,
    store: Path | None = None,
) -> tuple[bool, str]:
    """Return whether a restart heals the leaf server now, and why or why not.

    It does where writing failed for want of space and there is space again. Where JetStream has ended
    nothing says why, nor which disk it was: it does where there is space in the server's `store`; where that is
    not known (None), nobody can tell.
    """
    if not failed:
        return False, "the leaf server writes all its streams"
    known = [each for each in failed.items() if each[0] != SILENT]
    if not known:
        return _may_begin_again(failed[SILENT], None if store is None else free(store))
    stream, said = known[0]
    found = _PLACE.search(said)
    if "no space left" not in said or found is None:
        return False, f"{stream} cannot be written, and not for want of space: {said}"
    if free(Path(found[1])) < FREE_BYTES_MIN:
        return False, f"{stream} cannot be written: the disk of {found[1]} is still full"
    return True, f"{stream} could not be written, and there is space again: {said}"


def _may_begin_again(said: str, free_bytes: int | None) -> tuple[bool, str]:
    ended = f"JetStream of the leaf server has ended: {said}"
    if free_bytes is None:
        return False, f"{ended}; and where its store is, is not known: look, and restart it"
    # A server started on a full disk would make do with what is free then, for as long as it runs.
    if free_bytes < FREE_BYTES_MIN:
        return False, f"{ended}; and its disk is full"
    return True, ended
