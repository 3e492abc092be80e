"""The shared part of agent, hub, and Spark: the wire format, the merge of values, and words of trust.

Enter at `encode_frame`, `encode_point`, `decode`, and `check`, or at a room. A vehicle needs the
standard library and cbor2 alone to encode; `bulk`, for the hub and Spark, needs numpy and pyarrow.
Nothing here knows the agent's ledger, the hub's books, or Spark.
"""

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Header, Kind, Message, Opaque, Point, Value
from backhaul_codec.wire.envelope import chain, hash_of, peek, restamp
from backhaul_codec.wire.messages import check, decode, encode_bundle, encode_frame, encode_point

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
    "encode_bundle",
    "encode_frame",
    "encode_point",
    "hash_of",
    "peek",
    "restamp",
]
