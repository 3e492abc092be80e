"""Rows of state by 64-bit key, as arrays: looked up, added to and packed without Python per row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import cbor2
import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags

_LENGTH_BYTES = 4


class Table:
    """Sorted keys, and for each section one array of rows beside them.

    Args:
        blanks: section to the row (an array of one) that a new key begins with.
    """

    def __init__(self, blanks: Mapping[str, NDArray[Any]]) -> None:
        self._blanks = dict(blanks)
        self.keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.sections = {name: blank[:0].copy() for name, blank in blanks.items()}
        self.settle()

    def __getitem__(self, section: str) -> NDArray[Any]:
        """Return a section's rows; they may be written to."""
        return self.sections[section]

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the row of each key, -1 where there is none.

        `keys`: (n,) uint64; the result is (n,) intp.
        """
        if not len(self.keys):
            return np.full(len(keys), -1, np.intp)
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[rows] == keys, rows, -1)

    def rows(self, keys: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the row of each key, adding those that are new: rows found before move by that.

        `keys`: (n,) uint64; the result is (n,) intp.
        """
        missing = np.unique(keys[self.find(keys) < 0])
        if len(missing):
            places = np.searchsorted(self.keys, missing)
            self.keys = np.insert(self.keys, places, missing)
            for name, blank in self._blanks.items():
                new = np.repeat(blank, len(missing), axis=0)
                self.sections[name] = np.insert(self.sections[name], places, new, axis=0)
        return self.find(keys)

    def keep(self, wanted: Flags) -> None:
        """Drop all other rows.

        `wanted`: (rows,) bool.
        """
        if not wanted.all():
            self.keys = self.keys[wanted]
            self.sections = {name: rows[wanted] for name, rows in self.sections.items()}

    def pack(self) -> bytes:
        """Return all of it as bytes."""
        described = {name: rows.dtype.descr for name, rows in self.sections.items()}
        head = json.dumps({"rows": len(self), "sections": described}).encode()
        bodies = [np.ascontiguousarray(rows).tobytes() for rows in self.sections.values()]
        length = len(head).to_bytes(_LENGTH_BYTES, "little")
        return b"".join([length, head, self.keys.tobytes(), *bodies])

    def unpack(self, packed: bytes) -> None:
        """Restore the result of `pack`, of this or another version of the program.

        A section or field that is new begins blank; one that is no more is dropped. So a rule can
        be added, or remember more, without a new checkpoint.
        """
        view = memoryview(packed)
        start = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
        head = json.loads(bytes(view[_LENGTH_BYTES:start]))
        count = head["rows"]
        self.keys = np.frombuffer(view, np.uint64, count, start).copy()
        start += self.keys.nbytes
        found: dict[str, NDArray[Any]] = {}
        for name, described in head["sections"].items():
            dtype = np.dtype([_field(item) for item in described])
            found[name] = np.frombuffer(view, dtype, count, start)
            start += count * dtype.itemsize
        self.sections = {
            name: _taken(found.get(name), blank, count) for name, blank in self._blanks.items()
        }

    def settle(self) -> None:
        """Have `pack_changes` count from here."""
        self._settled_keys = self.keys
        self._settled = {name: rows.copy() for name, rows in self.sections.items()}

    def pack_changes(self) -> bytes:
        """Return the changes since it was settled, and settle it; b"" for nothing.

        Found by comparing all bytes: whoever writes to a section need not tell.
        """
        rows = np.flatnonzero(self._differs())
        gone = self._settled_keys[self.find(self._settled_keys) < 0]
        if not len(rows) + len(gone):
            return b""
        part = Table(self._blanks)
        part.keys = self.keys[rows]
        part.sections = {name: all_rows[rows] for name, all_rows in self.sections.items()}
        if self.keys is self._settled_keys:
            for name, changed in part.sections.items():
                self._settled[name][rows] = changed
        else:
            self.settle()
        return cbor2.dumps([gone.tobytes(), part.pack()])

    def _differs(self) -> Flags:
        if not len(self._settled_keys):
            return np.ones(len(self), np.bool_)
        differs = np.zeros(len(self), np.bool_)
        before: Any = slice(None)
        if self.keys is not self._settled_keys:
            at = np.searchsorted(self._settled_keys, self.keys)
            before = np.minimum(at, len(self._settled_keys) - 1)
            differs = self._settled_keys[before] != self.keys
        for name, rows in self.sections.items():
            other = _bytes(rows) != _bytes(self._settled[name][before])
            differs[np.flatnonzero(other) // rows.itemsize] = True
        return differs

    def apply(self, changes: bytes) -> None:
        """Apply the result of `pack_changes`; the caller calls `settle`."""
        if not changes:
            return
        gone, packed = cbor2.loads(changes)
        self.keep(np.isin(self.keys, np.frombuffer(gone, np.uint64), invert=True))
        part = Table(self._blanks)
        part.unpack(packed)
        rows = self.rows(part.keys)
        for name, changed in part.sections.items():
            self.sections[name][rows] = changed


def _bytes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows).view(np.uint8)


def _field(described: list[Any]) -> tuple[Any, ...]:
    return (*described[:2], tuple(described[2])) if len(described) > 2 else tuple(described)


def _taken(rows: NDArray[Any] | None, blank: NDArray[Any], count: int) -> NDArray[Any]:
    if rows is not None and rows.dtype == blank.dtype:
        return rows.copy()
    taken = np.repeat(blank, count, axis=0)
    for name in set(blank.dtype.names or ()) & set(
        rows.dtype.names or () if rows is not None else ()
    ):
        assert rows is not None
        if rows.dtype[name].shape == blank.dtype[name].shape:
            taken[name] = rows[name]
    return taken
