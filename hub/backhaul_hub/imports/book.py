"""The book of imports in hub.db, as a run of one asks it: each question is a transaction of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.imports.blocks import epoch_of
from backhaul_hub.lane_records.imported_rows import (
    Source,
    add_hours,
    epochs_of,
    note_stream,
    noted_stream,
    put,
    source_of_db,
    take_epoch,
)


class ImportStart(msgspec.Struct, forbid_unknown_fields=True):
    """Which of these devices the hub does not know, and how far the stream went at least."""

    devices: list[str] = []


class ImportLook(msgspec.Struct, forbid_unknown_fields=True):
    """How far a recording is kept."""

    source: str


class ImportBegin(msgspec.Struct, forbid_unknown_fields=True):
    """Rows that are to be published; the answer is their epoch."""

    source: Source
    stretch: str


class ImportKept(msgspec.Struct, forbid_unknown_fields=True):
    """Rows that are published: their recording, the readings of each hour since 1970, and the end of the stream."""

    source: Source
    hours: dict[int, int]
    created: str
    seq: int


class ImportBook(Protocol):
    """The questions of a run; each method raises HubError where hub.db refuses, or nobody answers."""

    async def stream(self) -> tuple[str, int] | None:
        """Return when the stream was made that was published to, and how far it went at least."""

    async def source(self, source: str) -> Source | None:
        """Return how far a recording is kept; None: nothing of it."""

    async def begin(self, going: Source, stretch: str) -> int:
        """Note rows that are to be published; return their epoch."""

    async def kept(self, kept: Source, hours: Mapping[int, int], created: str, seq: int) -> None:
        """Note that they are published."""


@dataclass(frozen=True, slots=True)
class RegistryBook:
    """The book itself, for the process that has hub.db."""

    _registry: Registry

    async def stream(self) -> tuple[str, int] | None:
        """Return when the stream was made that was published to, and how far it went at least."""
        return await noted_stream(self._registry)

    async def source(self, source: str) -> Source | None:
        """Return how far a recording is kept; None: nothing of it."""
        return await source_of_db(self._registry, source)

    async def begin(self, going: Source, stretch: str) -> int:
        """Note rows that are to be published; return their epoch."""

        async def decide() -> tuple[Sequence[RowChange], int]:
            epoch = epoch_of(stretch, await epochs_of(self._registry, going.device))
            noted = put(replace(going, going_epoch=epoch))
            return [*noted, take_epoch(going.device, epoch, stretch)], epoch

        return await self._registry.write_decided(decide)

    async def kept(self, kept: Source, hours: Mapping[int, int], created: str, seq: int) -> None:
        """Note that they are published."""
        added = add_hours(kept.device, hours)
        await self._registry.write([*put(kept), added, note_stream(created, seq)])
