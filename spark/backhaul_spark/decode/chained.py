"""Messages' places in their lanes' chains, as numbers: links, hashes, and where a chain parts. No I/O.

A hash is 6 bytes; in columns it is the integer of them, the first byte the highest, and 0 is "not known":
of a message of version 1, and of the link of one that names none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.wire.envelope import HASH_BYTES, NO_LINK, hash_of, is_chained, link_of
from backhaul_spark.arrays import Flags, Ints

LANE = ("device", "lane", "epoch")
# Of the table `hashes`: messages that were new when they came, and those whose place was taken.
FIRST, AGAIN = "first", "again"
_PAD = bytes(8 - HASH_BYTES)


def links_and_hashes(subjects: Sequence[str], bodies: Sequence[bytes]) -> tuple[Ints, Ints]:
    """Return the link and the hash of each message that could be read, by the subject on which UP has it."""
    links, hashes = [], []
    for subject, body in zip(subjects, bodies, strict=True):
        if is_chained(body):
            links.append(link_of(body))
            hashes.append(hash_of(subject.split(".", 2)[2], body))
        else:
            links.append(NO_LINK)
            hashes.append(NO_LINK)
    return numbers(b"".join(links)), numbers(b"".join(hashes))


def numbers(packed: bytes) -> Ints:
    """Return hashes that stand one behind the other, as numbers."""
    wide = np.zeros((len(packed) // HASH_BYTES, 8), np.uint8)
    wide[:, len(_PAD) :] = np.frombuffer(packed, np.uint8).reshape(-1, HASH_BYTES)
    return wide.view(">i8").ravel().astype(np.int64)


def packed(hashes: Ints) -> bytes:
    """Return numbers as hashes, one behind the other.

    `hashes`: (n,) int64; the result has HASH_BYTES each.
    """
    wide = hashes.astype(">i8").view(np.uint8).reshape(-1, 8)
    return wide[:, len(_PAD) :].tobytes()


def number(text: str) -> int:
    """Return a hash in hex as a number; empty text is 0."""
    return int(text or "0", 16)


def text(hash_: int) -> str:
    """Return a number as the hash in hex, empty for 0."""
    return f"{hash_:0{2 * HASH_BYTES}x}" if hash_ else ""


def parted(hashes: Ints, links: Ints) -> Flags:
    """Return where `links` name another message than the one with the hash beside them.

    Both are (n,) int64; the result is (n,) bool.
    """
    return np.asarray((hashes != 0) & (links != 0) & (hashes != links))


def same_lane(rows: pa.Table) -> Flags:
    """Return of each row but the first, in order of lanes, whether it is of the lane of the row before."""
    same = np.ones(max(rows.num_rows - 1, 0), dtype=bool)
    for name in LANE:
        column = rows.column(name)
        same &= pc.equal(column[1:], column[:-1]).to_numpy()
    return same


def known(rows: pa.Table, name: str) -> Ints:
    """Return a column of hashes; where an older version wrote none it is 0."""
    return np.asarray(rows.column(name).fill_null(0).to_numpy())


def partings(coverage: pa.Table) -> pa.Table:
    """Return LANE, `seq` and `ingest` of messages whose link is not the hash of the one before them.

    Args:
        coverage: rows of that table. What is inside one of them is linked, or of version 1.
    """
    rows = coverage.sort_by([(name, "ascending") for name in (*LANE, "lo")]).combine_chunks()
    lo, hi = rows.column("lo").to_numpy(), rows.column("hi").to_numpy()
    at = same_lane(rows) & (lo[1:] == hi[:-1] + 1)
    at &= parted(known(rows, "hash")[:-1], known(rows, "link")[1:])
    places = np.flatnonzero(at) + 1
    ingest = rows.column("ingest").to_numpy()
    found = rows.take(pa.array(places)).select([*LANE, "lo"]).rename_columns([*LANE, "seq"])
    newest = np.maximum(ingest[places], ingest[places - 1])
    return found.append_column("ingest", pa.array(newest, pa.int64()))
