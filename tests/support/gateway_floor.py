"""The floor: bytes of one self-contained message of a gateway, names in it, deflated. Pure.

Made for this kind of work alone (values with one decimal, read together), so that no format that can carry
more is smaller. It is no message of ours, and nothing reads it but the test.
"""

from __future__ import annotations

import itertools
import zlib
from struct import Struct, pack, unpack_from
from typing import TYPE_CHECKING

from tests.support.gateway_work import VALUES, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = Struct("<qBB")  # milliseconds of the first turn, turns, values a node


def self_contained(time_ms: int, turns: Sequence[Sequence[Value]]) -> bytes:
    """Return one message of turns that follow each other; each has the same series in the same order."""
    first = turns[0]
    nodes = list(dict.fromkeys(value.node for value in first))
    names = "\n".join(nodes).encode()
    values = len(first) // len(nodes)
    rows = [[round(value.value * 10) for value in turn] for turn in turns]
    changes = bytes(
        (now - before) & 0xFF
        for earlier, later in itertools.pairwise(rows)
        for before, now in zip(earlier, later, strict=True)
    )
    head = _HEAD.pack(time_ms, len(turns), values)
    base = pack(f"<{len(first)}h", *rows[0])
    planes = base[0::2] + base[1::2]
    body = pack("<H", len(names)) + names + planes + changes
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return head + deflate.compress(body) + deflate.flush()


def read(message: bytes) -> tuple[int, list[list[Value]]]:
    """Return what `self_contained` was given."""
    time_ms, count, values = _HEAD.unpack_from(message)
    body = zlib.decompress(message[_HEAD.size :], -15)
    (size,) = unpack_from("<H", body)
    nodes = body[2 : 2 + size].decode().split("\n")
    series = [(node, type_) for node in nodes for type_ in VALUES[:values]]
    planes = body[2 + size : 2 + size + 2 * len(series)]
    row = [
        low | high << 8
        for low, high in zip(planes[: len(series)], planes[len(series) :], strict=True)
    ]
    rows = [row]
    changes = body[2 + size + 2 * len(series) :]
    for turn in range(count - 1):
        part = changes[turn * len(series) : (turn + 1) * len(series)]
        row = [now + (change ^ 0x80) - 0x80 for now, change in zip(row, part, strict=True)]
        rows.append(row)
    return time_ms, [
        [Value(node, type_, value / 10) for (node, type_), value in zip(series, row, strict=True)]
        for row in rows
    ]
