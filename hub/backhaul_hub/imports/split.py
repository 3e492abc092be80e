"""A file's rows by device, and a device's rows in blocks: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from backhaul_codec.recordings.mapping import DeviceOf
from backhaul_codec.recordings.readers import Chunk
from backhaul_codec.subjects import DEVICE_ID

NAMES_SHOWN = 20


class Splitter:
    """Cuts chunks of one file by device; rows are numbered anew for each.

    Args:
        of: the mapping's [device].
        device: whose file it is; None: a column says of each row whose it is.
    """

    def __init__(self, of: DeviceOf, device: str | None) -> None:
        self.rows: Counter[str] = Counter()
        self.unnamed: Counter[str] = Counter()
        """Cells that name no device, the first few of them."""
        self._of = of
        self._device = device
        self._names: dict[Any, str | None] = {}

    def split(
        self, chunk: Chunk, wanted: Collection[str] | None = None
    ) -> Iterator[tuple[str, Chunk]]:
        """Yield the rows of each device, of those wanted or all."""
        if self._device is not None:
            yield self._device, self._numbered(self._device, chunk.rows, chunk.columns)
            return
        places: dict[str, list[int]] = {}
        for place, raw in enumerate(chunk.columns[self._of.column]):
            device = self._name(raw)
            if device is not None and (wanted is None or device in wanted):
                places.setdefault(device, []).append(place)
        for device, mine in places.items():
            columns = {
                name: [column[place] for place in mine] for name, column in chunk.columns.items()
            }
            yield device, self._numbered(device, len(mine), columns)

    def _numbered(self, device: str, rows: int, columns: dict[str, list[Any]]) -> Chunk:
        first = self.rows[device]
        self.rows[device] += rows
        return Chunk(first, rows, columns, 0)

    def _name(self, raw: Any) -> str | None:
        if raw not in self._names:
            if len(self._names) > 100_000:
                self._names.clear()
            device = self._of.name(str(raw)) if raw is not None else ""
            self._names[raw] = device if DEVICE_ID.match(device) else None
        found = self._names[raw]
        if found is None:
            text = "" if raw is None else str(raw)[:40]
            if text in self.unnamed or len(self.unnamed) < NAMES_SHOWN:
                self.unnamed[text] += 1
        return found


class Blocks:
    """Collects a device's rows from `first` on, and gives them out in blocks.

    They end at multiples of `step`, wherever the first one begins: so those that follow are the same as
    if all had been cut at once.

    Args:
        first: the first row that is wanted.
        step: rows of a whole block.
        end: where the first block ends, not included; None: as all others.
    """

    def __init__(self, first: int, step: int, end: int | None = None) -> None:
        self._first = first
        self._step = step
        self._end = self._next_end() if end is None else end
        self._rows = 0
        self._columns: dict[str, list[Any]] = {}

    def add(self, chunk: Chunk) -> Iterator[Chunk]:
        """Take rows in, in order; yield the blocks that are full."""
        at = max(0, self._first + self._rows - chunk.first_row)
        while at < chunk.rows:
            take = min(chunk.rows - at, self._end - self._first - self._rows)
            for name, column in chunk.columns.items():
                self._columns.setdefault(name, []).extend(column[at : at + take])
            self._rows += take
            at += take
            if self._first + self._rows == self._end:
                yield self.rest()
                self._end = self._next_end()

    def _next_end(self) -> int:
        return (self._first // self._step + 1) * self._step

    def rest(self) -> Chunk:
        """Return the rows that make no full block, perhaps none, and begin anew."""
        block = Chunk(self._first, self._rows, self._columns, 0)
        self._first, self._rows, self._columns = self._first + self._rows, 0, {}
        return block
