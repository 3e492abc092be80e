"""Encode and decode what the vehicle and the hub say to each other.

Points, envelopes and frames as docs/wire-format.md has them. No I/O and no clock; a vehicle needs
the standard library and cbor2 alone. `backhaul_codec.bulk.columns`, for the hub and Spark, needs numpy
and pyarrow and is imported only by who wants it. `backhaul_codec.subjects` names the subjects.
"""

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Header, Kind, Message, Opaque, Point, Value
from backhaul_codec.wire.envelope import chain, hash_of, peek, restamp
from backhaul_codec.wire.messages import check, decode, encode_frame, encode_point

__all__ = [
    "CodecError",
    "Header",
    "Kind",
    "Message",
    "Opaque",
    "Point",
    "Value",
    "chain",
    "check",
    "decode",
    "encode_frame",
    "encode_point",
    "hash_of",
    "peek",
    "restamp",
]
