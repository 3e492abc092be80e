"""Hypothesis strategies for points, frames and damaged messages.

`exact` turns a point into something that compares bit for bit: -0.0 is not 0.0 there, one NaN is
not another, and 1 is not 1.0.
"""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, Value

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def double(bits: int) -> float:
    """Return the float64 with these 64 bits."""
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def _decimal(digits: int, exponent: int) -> float:
    return digits / float(10**exponent)


decimals = st.builds(_decimal, st.integers(-(10**9), 10**9), st.integers(0, 9))
readings = st.builds(_decimal, st.integers(-999, 999), st.just(1))
odd_floats = st.sampled_from([0.0, -0.0, 0.1 + 0.2, 1e300, 5e-324, float("inf"), -float("inf")])
any_bits = st.integers(0, UINT64_MAX).map(double)
nans = st.integers(1, 2**52 - 1).map(lambda payload: double(0x7FF << 52 | payload))
floats = st.one_of(readings, decimals, st.floats(width=32), odd_floats, any_bits, nans)

integers = st.one_of(
    st.integers(-300, 300),
    st.integers(INT64_MIN, UINT64_MAX),
    st.sampled_from([INT64_MIN, INT64_MAX, INT64_MAX + 1, UINT64_MAX]),
)
json_values = unicode_text.map(lambda text: Opaque(6, text.encode()))
opaques = st.one_of(json_values, st.builds(Opaque, st.integers(7, 255), st.binary(max_size=40)))
values: st.SearchStrategy[Value] = st.one_of(
    floats, integers, unicode_text, st.binary(max_size=40), opaques
)

times = st.one_of(
    st.integers(0, 1000).map(lambda tick: 1_700_000_000_000_000_000 + tick * 10_000_000),
    st.integers(INT64_MIN, INT64_MAX),
    st.sampled_from([INT64_MIN, INT64_MAX, 0]),
)
tombstones = st.one_of(st.just(0), st.integers(0, 255))


def points(node: str | None = None) -> st.SearchStrategy[Point]:
    """Return single points with anything that the format allows in every field."""
    nodes = names if node is None else st.just(node)
    return st.builds(Point, nodes, names, times, values, names, tombstones, names)


@st.composite
def frames(draw: st.DrawFn, max_size: int = 30) -> list[Point]:
    """Draw the points of one frame: some series with their own kind of value, some surprises."""
    node = draw(names)
    kinds = st.sampled_from([readings, decimals, st.floats(width=32), floats, integers, values])
    series = draw(st.lists(st.tuples(names, names, kinds), min_size=1, max_size=4))
    origins = draw(st.lists(names, min_size=1, max_size=3)) if draw(st.booleans()) else [""]
    deleted = tombstones if draw(st.booleans()) else st.just(0)
    some: list[Point] = []
    for _ in range(draw(st.integers(1, max_size))):
        type_, key, kind = draw(st.sampled_from(series))
        origin = draw(st.sampled_from(origins))
        value: Any = draw(kind)
        some.append(Point(node, type_, draw(times), value, key, draw(deleted), origin))
    return some


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw a message with some bytes changed, cut out, put in or said twice."""
    message = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(message)))
        upto = min(len(message), at + draw(st.integers(0, 8)))
        message[at:upto] = draw(
            st.one_of(st.binary(max_size=8), st.just(bytes(message[at:upto]) * 2))
        )
    return bytes(message)


def exact(point: Point) -> tuple[object, ...]:
    """Return a point as a tuple that is equal only where every bit is."""
    value: object = point.value
    if isinstance(value, float):
        value = struct.pack("<d", value)
    return (
        *(point.node, point.type, point.key, point.time, type(point.value).__name__, value),
        *(point.tombstone, point.origin),
    )
