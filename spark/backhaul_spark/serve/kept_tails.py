"""Messages of devices that were read of the hub's streams for one question, kept for the next; for several threads.

They are kept as they were stored, in order, from where ingest had not been: the next question reads what came since,
beginning with the last one that is kept. If that is another one by then, or gone, nothing that is kept counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

_SHARE = 4
"""One device may have this part of the room."""
_BATCHES_MAX = 32
"""More are brought together: each question may add one of a single message."""


@dataclass(frozen=True, slots=True)
class KeptTail:
    """A device's messages of one stream, all from `start` on up to the last.

    `created`: the stream's. `batches`: none is empty.
    """

    created: str
    start: int
    batches: tuple[pa.RecordBatch, ...]

    @property
    def last(self) -> tuple[int, int]:
        """The last message: its sequence, and when the hub stored it (µs since 1970)."""
        return _place(self.batches[-1], -1)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(batch.nbytes for batch in self.batches)

    def after(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the messages behind the last one, of a batch that begins there; None: the batch begins with another message."""
        return batch.slice(1) if batch.num_rows and _place(batch, 0) == self.last else None

    def from_(self, start: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages from a sequence on."""
        for batch in self.batches:
            if _place(batch, 0)[0] >= start:
                yield batch
            elif _place(batch, -1)[0] >= start:
                yield batch.filter(pc.greater_equal(batch.column("stream_seq"), start))


class KeptTails:
    """The tails that are kept, bounded by size: the one that a question needed longest ago makes room."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[tuple[str, str], KeptTail] = {}
        self._turn = threading.Lock()

    def find(
        self, device: str, stream: str, *, created: str, start: int, last: int
    ) -> KeptTail | None:
        """Return a device's messages of a stream from `start` on, or from before it; None: they have to be read.

        `created` and `last` (sequence): the stream's, as it is now.
        """
        with self._turn:
            kept = self._kept.pop((device, stream), None)
            if kept is None or kept.created != created or kept.last[0] > last:
                return None
            self._kept[device, stream] = kept
            return kept if kept.start <= start else None

    def keep(self, device: str, stream: str, kept: KeptTail, floor: int) -> None:
        """Keep messages; of those before `floor`, where ingest has been by now, nothing more."""
        start = max(kept.start, floor)
        batches = tuple(kept.from_(start))
        if len(batches) > _BATCHES_MAX:
            batches = tuple(pa.Table.from_batches(batches).combine_chunks().to_batches())
        fresh = KeptTail(kept.created, start, batches)
        with self._turn:
            self._kept.pop((device, stream), None)
            if not batches or fresh.size > self._bytes_max // _SHARE:
                return
            self._kept[device, stream] = fresh
            while sum(each.size for each in self._kept.values()) > self._bytes_max:
                del self._kept[next(iter(self._kept))]


def _place(batch: pa.RecordBatch, at: int) -> tuple[int, int]:
    stored = batch.column("stored_at").cast(pa.int64())
    return batch.column("stream_seq")[at].as_py(), stored[at].as_py()
