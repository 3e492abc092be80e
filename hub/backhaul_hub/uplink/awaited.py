"""Dictionaries that messages in UP wait for: which, since when, where the messages stand, and when to ask. Pure.

Such a message counts as not held, so its hour is not judged, until its dictionary has come: then the reader takes it
up from UP, where it stands, whether its vehicle still has it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from backhaul_hub.db.change import RowChange

AWAITED_MAX = 64
"""Dictionaries of one vehicle in one stream: whoever names more is no agent."""
COPIED_MAX = 64
"""Of the messages that wait for one dictionary, so many are copied to QUARANTINE; all stand in UP."""
ASK_S, ASK_S_MAX = 30.0, 600.0
"""How long an answer may take before the vehicle is asked again: longer each time."""

_LINK_UP_S_MIN = 10.0

_PUT = "INSERT OR REPLACE INTO awaited_dictionary VALUES (?, ?, ?, ?, ?, ?, ?)"
_DROP = "DELETE FROM awaited_dictionary WHERE device = ? AND digest = ? AND stream = ?"


@dataclass(slots=True)
class Awaited:
    """Messages of one stream that wait for one dictionary: between two sequences, and how many."""

    device: str
    digest: bytes
    stream: str
    low: int
    high: int
    messages: int
    since_ns: int

    @property
    def place(self) -> tuple[str, bytes, str]:
        """Return the key that tells it apart."""
        return self.device, self.digest, self.stream


@dataclass(slots=True)
class _Asked:
    """When a device was asked for a dictionary last, over which link, and how long it has to answer."""

    at_s: float
    link_ns: int
    patience_s: float


class AwaitedBook:
    """All dictionaries that are awaited."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bytes, str], Awaited] = {}
        self._of_device: dict[tuple[str, str], set[bytes]] = {}
        self._streams: dict[tuple[str, bytes], set[str]] = {}
        self._here: dict[str, dict[tuple[str, bytes, str], None]] = {}
        """By stream: what can be taken up, in the order of coming."""
        self._changed: set[tuple[str, bytes, str]] = set()
        self._asked: dict[tuple[str, bytes], _Asked] = {}

    def __iter__(self) -> Iterator[Awaited]:
        """Yield all that is awaited."""
        return iter(list(self._rows.values()))

    def restore(self, rows: Iterable[Awaited]) -> None:
        """Take in the stored rows."""
        for row in rows:
            self._enter(row)

    def note(self, device: str, digest: bytes, stream: str, seq: int, now_ns: int) -> int:
        """Take in a message that waits; return how many do for this dictionary, 0 beyond the bound."""
        row = self._rows.get((device, digest, stream))
        if row is None:
            if len(self._of_device.get((device, stream), ())) >= AWAITED_MAX:
                return 0
            row = Awaited(device, digest, stream, seq, seq, 0, now_ns)
            self._enter(row)
        row.low, row.high = min(row.low, seq), max(row.high, seq)
        row.messages += 1
        self._changed.add(row.place)
        return row.messages

    def count(self, device: str, digest: bytes, stream: str) -> int:
        """Return how many messages of a stream wait for a dictionary."""
        row = self._rows.get((device, digest, stream))
        return row.messages if row else 0

    def came(self, device: str, digest: bytes) -> None:
        """Take in that a dictionary is here: the messages that wait for it can be taken up."""
        self._asked.pop((device, digest), None)
        for stream in sorted(self._streams.get((device, digest), ())):
            self._here.setdefault(stream, {})[device, digest, stream] = None

    def next_here(self, stream: str) -> Awaited | None:
        """Return the next messages of a stream to take up, None for nothing; each vehicle in turn."""
        here = self._here.get(stream)
        if not here:
            return None
        place = next(iter(here))
        here[place] = here.pop(place)  # behind all others
        return self._rows[place]

    def gone(self, row: Awaited) -> None:
        """Take in that a dictionary which had come is not here any more."""
        self._here[row.stream].pop(row.place, None)

    def taken(self, row: Awaited, up_to: int) -> None:
        """Take in that all up to a sequence was taken up."""
        self._changed.add(row.place)
        row.low = up_to + 1
        if row.low > row.high:
            del self._rows[row.place]
            self._of_device[row.device, row.stream].discard(row.digest)
            self._streams[row.device, row.digest].discard(row.stream)
            self._here[row.stream].pop(row.place, None)

    def take_changes(self) -> list[RowChange]:
        """Return the rows to be stored."""
        changed, self._changed = self._changed, set()
        put = [
            (
                row.device,
                row.digest.hex(),
                row.stream,
                row.low,
                row.high,
                row.messages,
                row.since_ns,
            )
            for place in changed
            if (row := self._rows.get(place)) is not None
        ]
        gone = [
            (place[0], place[1].hex(), place[2]) for place in changed if place not in self._rows
        ]
        return [RowChange(_PUT, put), RowChange(_DROP, gone)]

    def asks(self, links_ns: Mapping[str, int], now_s: float) -> list[tuple[str, bytes]]:
        """Return which vehicles to ask now for which dictionary; of each vehicle one at a time.

        Args:
            links_ns: the vehicles that are connected, and since when.
            now_s: monotonic.
        """
        found: dict[str, bytes] = {}
        for row in self._rows.values():
            if row.device not in links_ns or row.device in found or self._is_here(row):
                continue
            key, link_ns = (row.device, row.digest), links_ns[row.device]
            asked = self._asked.get(key)
            if asked is None:
                self._asked[key] = _Asked(now_s, link_ns, ASK_S)
            elif asked.link_ns != link_ns:
                # One that comes up again and again is not asked each time.
                if now_s - asked.at_s < _LINK_UP_S_MIN:
                    continue
                self._asked[key] = _Asked(now_s, link_ns, ASK_S)
            elif now_s - asked.at_s >= asked.patience_s:
                patience_s = min(2 * asked.patience_s, ASK_S_MAX)
                self._asked[key] = _Asked(now_s, link_ns, patience_s)
            else:
                continue
            found[row.device] = row.digest
        return list(found.items())

    def missing(self) -> Iterator[Awaited]:
        """Yield the messages that wait for a dictionary that is not here."""
        return (row for row in self._rows.values() if not self._is_here(row))

    def _is_here(self, row: Awaited) -> bool:
        return row.place in self._here.get(row.stream, ())

    def _enter(self, row: Awaited) -> None:
        self._rows[row.place] = row
        self._of_device.setdefault((row.device, row.stream), set()).add(row.digest)
        self._streams.setdefault((row.device, row.digest), set()).add(row.stream)
