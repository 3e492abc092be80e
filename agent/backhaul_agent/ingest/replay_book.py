"""How far each recording is kept, so that no row of one comes into the ledger twice: pure, no I/O.

`backhaul-agent replay` sends a recording in bundles of rows. A bundle says which recording it is of
(`source`), from which row to which it goes, and what stood in all rows before it and in all up to its end
(two digests). The agent keeps a bundle's points and how far that recording is kept in one transaction:
after any crash of either, rows that are kept are known as such, and all others are not.

The facts stand in the ledger's meta table, in a fixed number of places: the recording that was added to
longest ago makes room. They are no secret and have no checksum: a flipped bit in one makes a digest that
fits nothing, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from backhaul_agent.errors import Code, RefusedError

PLACES = 4096
PARTS_MAX = 4096
REPLAYS = "replay."
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class KeptRecording(msgspec.Struct, frozen=True):
    """How far a recording is kept.

    ``rows``: from its beginning. ``digest``: of what stood in them. ``points``: that they gave.
    ``refused``: points of them that were refused for good. ``time_ns``: when it was added to last.
    """

    source: Digest
    rows: Count
    digest: Digest
    points: Count = 0
    refused: Count = 0
    time_ns: int = 0


class Bundle(msgspec.Struct, forbid_unknown_fields=True):
    """Rows of a recording, ``first`` to ``last`` (not included), as programs publish points.

    ``before`` and ``digest``: of all rows before ``first`` and before ``last``. ``parts``: subject,
    payload and the clock's word of each (ingest/parse.py). ``refused``: points of these rows that were left out, as the agent refused them.
    """

    source: Digest
    first: Count
    last: Count
    before: Digest
    digest: Digest
    parts: Annotated[list[tuple[str, bytes, str]], Meta(max_length=PARTS_MAX)]
    refused: Count = 0


class KeptQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``agent.replay.kept``."""

    source: Digest


class Note(NamedTuple):
    """The ledger's notes for a bundle's points, and the notes that must stand there until then."""

    noted: dict[str, str | int]
    expected: dict[str, str | int | None]


class ReplayBook:
    """Decides on bundles. ``meta`` returns the ledger's, as last committed."""

    def __init__(self, meta: Callable[[], Mapping[str, str | int]]) -> None:
        self._meta = meta
        self._under_way: dict[str, int] = {}
        """The places of recordings of which a bundle is being written: nothing tells of them yet."""

    def kept(self, source: str) -> KeptRecording | None:
        """Return how far a recording is kept, None where nothing is known of it.

        Raises:
            RefusedError: it is changing now.
        """
        self._require_rest(source)
        return self._find(source)[1]

    def begin(self, bundle: Bundle, points: int, time_ns: int) -> Note | None:
        """Return the notes for the bundle's points; None: all of it is kept.

        Until `end` no other bundle of this recording is taken.

        Raises:
            RefusedError: it does not follow what is kept, or another one is being written.
        """
        place, kept = self._find(bundle.source)
        self._require_rest(bundle.source)
        if kept is not None and (kept.rows, kept.digest) == (bundle.last, bundle.digest):
            return None
        rows = kept.rows if kept is not None else 0
        follows = bundle.first == rows and (kept is None or kept.digest == bundle.before)
        if not follows or bundle.last <= bundle.first:
            raise RefusedError(
                Code.OUT_OF_STEP,
                f"rows {bundle.first} to {bundle.last - 1} do not follow the {rows} rows that are kept"
                " of this recording: another replay of it is under way, the recording was changed, or"
                " the ledger is another one now. Run the replay again",
            )
        self._under_way[bundle.source] = place
        noted = KeptRecording(
            bundle.source,
            bundle.last,
            bundle.digest,
            (kept.points if kept else 0) + points,
            (kept.refused if kept else 0) + bundle.refused,
            time_ns,
        )
        name = f"{REPLAYS}{place}"
        text = msgspec.json.encode(noted).decode()
        return Note({name: text}, {name: self._meta().get(name)})

    def end(self, source: str) -> None:
        """Take in that the bundle that was begun is written, or is not."""
        self._under_way.pop(source, None)

    def _require_rest(self, source: str) -> None:
        if source in self._under_way:
            raise RefusedError(Code.BUSY, "rows of this recording are being written: try again")

    def _find(self, source: str) -> tuple[int, KeptRecording | None]:
        """Return the place of a recording with its record, else the place to be used."""
        oldest_ns: float = float("inf")
        place, free, meta = 0, -1, self._meta()
        others = {used for each, used in self._under_way.items() if each != source}
        for number in range(PLACES):
            if number in others:
                continue
            name = f"{REPLAYS}{number}"
            if name not in meta:
                # Something may stand behind it: of two that began at once only one was written.
                free = number if free < 0 else free
                continue
            found = _read(meta[name])
            if found is None:
                place, oldest_ns = number, float("-inf")
            elif found.source == source:
                return number, found
            elif found.time_ns < oldest_ns:
                place, oldest_ns = number, found.time_ns
        if free >= 0:
            return free, None
        return place, None


def _read(text: Any) -> KeptRecording | None:
    """Return the contents of a place; None where it says nothing that could be so."""
    try:
        return msgspec.json.decode(text, type=KeptRecording) if isinstance(text, str) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
