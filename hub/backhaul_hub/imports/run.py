"""One run of `backhaul-hub import`: files into the stream IMPORT, each row once.

Of each block hub.db is told first that it is going to be published, then that it is kept. So after any
end the very same block is published again, under the same places, before anything else of that recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from pathlib import Path

import msgspec
from nats.errors import Error as NatsError

from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.chain import Chain, source_of
from backhaul_codec.recordings.mapping import DeviceOf, Mapping
from backhaul_codec.recordings.points import RowMapper
from backhaul_codec.recordings.readers import Chunk, open_recording
from backhaul_codec.subjects import IMPORT_STREAM
from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.imports.blocks import BLOCK_ROWS, Packed, messages, pack, stretch_of
from backhaul_hub.imports.book import ImportBook
from backhaul_hub.imports.files import FoundFiles, RefusedPart, groups, splitter_of
from backhaul_hub.imports.split import Blocks
from backhaul_hub.lane_records.imported_rows import LOST, Source, lost
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import Clock

CELLS_MAX = 4_000_000  # of all open blocks, some 200 MB
AGAIN_S, AGAIN_S_MAX = 1.0, 60.0


@dataclass(slots=True)
class ImportOutcome:
    """The result of a run. Rows and points; `before`: rows that were kept before it."""

    rows: int = 0
    points: int = 0
    before: int = 0
    untimed: int = 0
    points_refused: int = 0
    last_refusal: str = ""
    refused: list[RefusedPart] = field(default_factory=list)

    @property
    def seen(self) -> int:
        """How many rows are done with."""
        return self.rows + self.before


class ChangedError(Exception):
    """A recording differs from the part of it that is kept."""


@dataclass(eq=False)
class Import:
    """Brings files into the stream.

    Args:
        directory: which the files are below.
        mapping: which column is what, and `of`, whose rows are whose.
        of: see `mapping`.
        book: what hub.db knows of imports.
        clock: for what is noted.
        told: how many rows are done with, and the time of the last one.
        again: publish also what is kept: the stream has lost it.
    """

    _directory: Path
    _mapping: Mapping
    _of: DeviceOf
    _book: ImportBook
    _api: JetStreamApi
    _clock: Clock
    _told: Callable[[int, int | None], None]
    _: KW_ONLY
    again: InitVar[bool] = False

    def __post_init__(self, again: bool) -> None:
        self.outcome = ImportOutcome()
        self._again_ns = self._clock.now_ns() if again else 0
        self._created = ""
        self._seq = 0

    async def run(self, found: FoundFiles) -> ImportOutcome:
        """Import all files that were found.

        Raises:
            HubError: the server or hub.db refuses, or the stream has lost what is kept; what is kept is kept.
        """
        if not self._again_ns and await lost(await self._book.stream(), self._api):
            raise HubError(LOST)
        info = await self._api.info(IMPORT_STREAM)
        self._created = info["created"]
        self.outcome.refused += found.refused
        cells = BLOCK_ROWS * len(self._mapping.columns())
        for path, devices in found.files.items():
            for group in groups(devices, CELLS_MAX, cells):
                await self._file(path, {name: devices[name] for name in sorted(group)})
        return self.outcome

    async def _file(self, path: Path, devices: dict[str, int]) -> None:
        name = path.relative_to(self._directory).as_posix()
        flows: dict[str, Flow | None] = {}  # None: refused
        try:
            splitter = splitter_of(path, self._directory, self._of)
            with open_recording(path, self._mapping.columns()) as recording:
                mapper = RowMapper(self._mapping, text_only=recording.text_only)
                for chunk in recording.chunks():
                    for device, part in splitter.split(chunk, devices):
                        if device not in flows:
                            flows[device] = await self._flow(device, name, devices[device], part)
                        if flow := flows[device]:
                            flows[device] = await self._feed(flow, part, mapper)
                for flow in filter(None, flows.values()):
                    await self._feed(flow, None, mapper)
        except MappingError as error:  # what could be read a moment ago
            self.outcome.refused.append(RefusedPart(name, str(error)))

    async def _flow(self, device: str, file: str, total: int, first: Chunk) -> Flow:
        source = source_of(self._mapping, first, device)
        known = await self._book.source(source)
        if known is None or known.updated_ns < self._again_ns:
            known = Source(source, device, file, total)
        return Flow(replace(known, file=file, total=max(total, known.rows)), self._mapping)

    async def _feed(self, flow: Flow, part: Chunk | None, mapper: RowMapper) -> Flow | None:
        """Publish the blocks that become full, or with no part the rest; None: no more of it."""
        try:
            for block in [flow.end()] if part is None else flow.take(part):
                if block.rows:
                    await self._block(flow, block, mapper)
        except ChangedError as error:
            source = flow.kept
            self.outcome.refused.append(RefusedPart(source.file, str(error), source.device))
            return None
        if part is None:
            self.outcome.before += flow.before
        return flow

    async def _block(self, flow: Flow, block: Chunk, mapper: RowMapper) -> None:
        end, digest = flow.advance(block)
        packed = pack(mapper.rows(block))
        going = await self._begin(flow, end, digest, packed)
        rows = (block.first_row, end)
        sent = messages(
            packed, going.device, going.source, rows, going.going_epoch, self._clock.now_ns()
        )
        answers = await asyncio.gather(
            *(self._publish(subject, body) for subject, body in sent[:-1]), return_exceptions=True
        )
        for error in filter(None, answers):
            raise error
        # Last, and alone: who reads it knows that the others are there.
        await self._publish(*sent[-1])
        flow.kept = replace(
            going,
            rows=end,
            digest=digest,
            points=going.points + packed.points,
            going_epoch=0,
            updated_ns=self._clock.now_ns(),
        )
        await self._book.kept(flow.kept, packed.hours, self._created, self._seq)
        self._count(packed, block)

    async def _begin(self, flow: Flow, end: int, digest: str, packed: Packed) -> Source:
        """Note the rows to be published, and their epoch."""
        kept = flow.kept
        if kept.going == end and kept.going > kept.rows:
            return kept  # as it was noted before the last run ended
        going = replace(
            kept,
            going=end,
            going_digest=digest,
            going_hours=msgspec.json.encode(sorted(packed.hours)).decode(),
            updated_ns=self._clock.now_ns(),
        )
        stretch = stretch_of(kept.source, kept.rows, kept.digest, end, digest)
        return replace(going, going_epoch=await self._book.begin(going, stretch))

    async def _publish(self, subject: str, body: bytes) -> None:
        """Store a message; again, where nobody answers: a repeat falls by its place.

        Raises:
            HubError: the server refuses, or does not answer for a minute.
        """
        waited_s = 0.0
        while True:
            try:
                answer = await self._api.publish(subject, body)
            except JetStreamError:
                raise
            except (HubError, NatsError) as error:
                if waited_s >= AGAIN_S_MAX:
                    raise HubError(
                        f"the server has not taken a message for {AGAIN_S_MAX:g} s: {error}",
                        hint="start it, then the same command: it goes on",
                    ) from error
                await asyncio.sleep(AGAIN_S)
                waited_s += AGAIN_S
            else:
                self._seq = max(self._seq, answer["seq"])
                return

    def _count(self, packed: Packed, block: Chunk) -> None:
        outcome = self.outcome
        outcome.rows += block.rows
        outcome.points += packed.points
        outcome.untimed += packed.untimed
        outcome.points_refused += packed.refused
        outcome.last_refusal = packed.last_refusal or outcome.last_refusal
        self._told(outcome.seen, packed.last_ns)


class Flow:
    """The rows of one device in one file, from where they are not kept: pure.

    ``kept``: how far they are. ``before``: how many were when it began.
    """

    def __init__(self, kept: Source, mapping: Mapping) -> None:
        self.kept = kept
        self.before = kept.rows
        self._chain = Chain(mapping)
        if not kept.digest:
            self.kept = replace(kept, digest=self._chain.digest)
        end = kept.going if kept.going > kept.rows else None
        self._blocks = Blocks(kept.rows, BLOCK_ROWS, end)

    def take(self, part: Chunk) -> list[Chunk]:
        """Take in rows; return the blocks that are full.

        Raises:
            ChangedError: the rows that are kept were others.
        """
        end = part.first_row + part.rows
        if self._chain.rows < self.before:
            self._chain.advance(part, min(end, self.before))
            if self._chain.rows == self.before and self._chain.digest != self.kept.digest:
                raise ChangedError(
                    f"{self.before} rows are kept of a recording that begins with the same row, and"
                    " those of this one are others: it was changed, or is another one"
                )
        return list(self._blocks.add(part))

    def end(self) -> Chunk:
        """Return the rows that make no whole block.

        Raises:
            ChangedError: it has fewer rows than were kept, or than a block that was begun.
        """
        rest = self._blocks.rest()
        had = max(self.kept.rows, self.kept.going)
        if rest.first_row + rest.rows < had or self._chain.rows < self.before:
            raise ChangedError(
                f"{had} rows of it were imported, or begun to be, and now it has fewer"
            )
        return rest

    def advance(self, block: Chunk) -> tuple[int, str]:
        """Return where a block ends, and the digest of all rows up to there.

        Raises:
            ChangedError: it was begun before, with other rows.
        """
        end = block.first_row + block.rows
        self._chain.advance(block, end)
        digest = self._chain.digest
        begun = self.kept.rows < end == self.kept.going
        if begun and digest != self.kept.going_digest:
            raise ChangedError(
                f"rows {block.first_row} to {end - 1} were begun to be imported, and are others now"
            )
        return end, digest
