"""Small bundles proven together: the same points as one by one, and the same refusals.

Covered: every byte of a bundle changed, every field odd, mixes of all that the strategies draw, and that good
bundles are in fact taken together. The reasons of refusals are in test_hostile and test_bundles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec import Kind, Point, encode_bundle, encode_frame
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.bulk.small_frames import read_small_frames
from backhaul_codec.bulk.subject_names import NO_NAMES
from backhaul_codec.wire.envelope import seal, unseal
from tests.support import alike, strategies
from tests.support.odd_fields import ODD

if TYPE_CHECKING:
    from collections.abc import Sequence

NOON = 1_700_000_000_000_000_000

# Scaled integers of two widths, integers below zero and over int64, float32, float64, a key; three nodes.
POINTS = [
    Point("car", "soc", NOON, 81.25),
    Point("car", "soc", NOON + 5 * 10**8, 81.5),
    Point("cell", "temp", NOON + 5 * 10**8, -20.5),
    Point("cell", "temp", NOON + 10**9, 310.0),
    Point("cell", "volts", NOON + 10**9, 1.0000001192092896, key="cell 7"),
    Point("", "amps", NOON + 10**9, 0.1 + 0.2),
    Point("car", "count", NOON + 10**9, 2**63 + 7),
    Point("car", "count", NOON + 10**9, 2**63 + 300),
]


def sealed(body: bytes, seq: int = 1) -> bytes:
    return seal(body or b"\xf6", Kind.BUNDLE, 1, seq, "none")


def taken(messages: Sequence[bytes]) -> list[int]:
    """Return which messages are proven together."""
    columns = read_small_frames(messages, [NO_NAMES] * len(messages), 1, Kind.BUNDLE)
    return [] if columns is None else columns.message.tolist()


def fields(**changes: Any) -> dict[int, Any]:
    """Return the map of a good bundle with some fields replaced, or left out where `...`."""
    _, body = unseal(encode_bundle(POINTS, epoch=1, seq=1))
    changed = cbor2.loads(body) | {int(name[1:]): value for name, value in changes.items()}
    return {key: value for key, value in changed.items() if value is not ...}


def test_a_good_bundle_is_taken_and_gives_each_point_its_node() -> None:
    messages = [
        encode_bundle(POINTS, epoch=2**32 - 1, seq=2**64 - 1, clock=2),
        encode_frame([Point("n", "t", NOON, 1.5)], epoch=1, seq=2),
        encode_bundle(POINTS[5:6], epoch=1, seq=8, compression="none"),
        encode_bundle([Point(f"ä{n}", f"t{n}", -n, n) for n in range(256)], epoch=0, seq=0),
        encode_bundle([Point("n", "t", NOON, 1.0000001192092896)], epoch=1, seq=9),
    ]
    assert taken(messages) == [0, 2, 3, 4]
    assert alike.decode_both(messages) == []
    nodes = decode_columns(messages[:1], together_min=1).column("node").to_pylist()
    assert nodes == [point.node for point in POINTS]


def test_any_byte_changed_is_refused_or_read_alike() -> None:
    _, body = unseal(encode_bundle(POINTS, epoch=1, seq=1))
    messages = [sealed(changed, seq) for seq, changed in enumerate(alike.changed(body))]
    assert alike.decode_both(messages)
    assert taken(messages)  # times and values, which anybody may change


@pytest.mark.slow
def test_any_field_odd_is_refused_or_read_alike() -> None:
    """Fields 16 to 31 do not exist; 32 is a hint."""
    good = sealed(cbor2.dumps(fields()))
    bases = [bytes(width * 3) for width in (1, 2, 3, 4, 5, 8, 16)] + [b"\0" * 23, b"\xff" * 24]
    bodies = [fields(**{f"_{field}": odd}) for field in (*range(18), 31, 32) for odd in ODD]
    bodies += [fields(_8=odd) for odd in bases]
    messages = [good, *(sealed(cbor2.dumps(body)) for body in bodies), good]
    refused = alike.decode_both(messages)
    assert len(refused) > len(bodies) / 2
    assert {0, len(messages) - 1} <= set(taken(messages))


def test_bases_where_no_series_has_one_are_refused() -> None:
    body = cbor2.loads(unseal(encode_bundle([Point("n", "t", NOON, 0.1 + 0.2)], epoch=1, seq=1))[1])
    assert 8 not in body
    refused = alike.decode_both([sealed(cbor2.dumps(body | {8: odd})) for odd in (b"", b"\0")])
    assert [bad.code for bad in refused] == ["series", "series"]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.lists(strategies.points(), min_size=1, max_size=12), min_size=1, max_size=8))
def test_whatever_is_drawn_is_read_alike(bundles: list[list[Point]]) -> None:
    messages = [encode_bundle(points, epoch=1, seq=n) for n, points in enumerate(bundles, 1)]
    assert alike.decode_both(messages) == []
