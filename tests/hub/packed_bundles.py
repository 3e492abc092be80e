"""Bundles that a vehicle packed against a dictionary, and the rows that the hub makes of them."""

from __future__ import annotations

from backhaul_codec import Point, encode_bundle, restamp
from backhaul_codec.wire.dictionaries import (
    digest_of,
    encode_dictionary,
    pack_with,
)
from backhaul_codec.wire.envelope import unseal

NODES = [f"node{number}" for number in range(30)]


def bundle(seq: int, *, epoch: int = 7) -> bytes:
    points = [Point(node, "temperature", seq * 10**9, 20.0 + seq) for node in NODES]
    return encode_bundle(points, epoch=epoch, seq=seq)


NAMES = unseal(bundle(1))[1]
DIGEST = digest_of(NAMES)


def carried(seq: int, body: bytes = NAMES) -> bytes:
    return restamp(encode_dictionary(body), epoch=7, seq=seq)


def packed(seq: int, body: bytes = NAMES) -> bytes:
    message = pack_with(bundle(seq), body)
    assert len(message) < len(bundle(seq)) / 2
    return message
