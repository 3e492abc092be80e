"""Read hostile CBOR with cbor2, within limits fixed before anything is allocated.

cbor2 turns tags into dates, fractions, patterns, e-mails or shared references. No field of ours
has such a thing, and some cost far more than their bytes (a fraction of two huge integers is
reduced by a quadratic algorithm), so every tag that cbor2 knows is made inert here.
"""

from io import BytesIO
from typing import Any, Final

import cbor2

from backhaul_codec.errors import CodecError

ITEMS_MAX = 1 << 19
DEPTH_MAX = 6

_UNDERSTOOD_BY_CBOR2 = (
    *(0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54),
    *(100, 256, 258, 260, 261, 1004, 43000, 55799),
)


class _Inert:
    """Stand where a tagged value stood that no field of ours may have."""


INERT: Final = _Inert()


def _make_inert(_value: object, _immutable: object) -> _Inert:
    return INERT


_DECODERS = dict.fromkeys(_UNDERSTOOD_BY_CBOR2, _make_inert)


def load(body: bytes) -> Any:
    """Decode one item that must fill the body. Raises: CodecError (`cbor`, `trailing`, `size`)."""
    if len(body) > ITEMS_MAX:  # an item has at least a byte: below, the body limits itself
        _require_few_items(body)
    decoder = cbor2.CBORDecoder(
        BytesIO(body),
        semantic_decoders=_DECODERS,
        max_depth=DEPTH_MAX,
        allow_indefinite=False,
        allow_duplicate_keys=False,
    )
    try:
        item = decoder.decode()
    except (cbor2.CBORError, ValueError, TypeError, OverflowError) as error:
        raise CodecError(f"the body is not CBOR as it must be: {error}", "cbor") from error
    try:
        decoder.read(1)
    except cbor2.CBORDecodeEOF:
        return item
    raise CodecError("bytes follow the CBOR item", "trailing")


def _require_few_items(body: bytes) -> None:
    """Walk the item heads without building anything, and stop at the first item too many."""
    offset, items, end = 0, 0, len(body)
    while offset < end:
        items += 1
        if items > ITEMS_MAX:
            raise CodecError(f"the body has more than {ITEMS_MAX} CBOR items", "size")
        major, info = body[offset] >> 5, body[offset] & 31
        offset += 1
        argument = info
        if info >= 24:
            if info > 27:
                raise CodecError("the body has an indefinite or reserved CBOR length", "cbor")
            width = 1 << (info - 24)
            argument = int.from_bytes(body[offset : offset + width], "big")
            offset += width
        if major in (2, 3):
            offset += argument
    if offset != end:
        raise CodecError("a CBOR length goes past the end of the body", "cbor")
