"""Read hostile CBOR with cbor2, within limits fixed before anything is allocated.

cbor2 turns tags into dates, fractions, patterns, e-mails or shared references. No field of ours
has such a thing, and some cost far more than their bytes (a fraction of two huge integers is
reduced by a quadratic algorithm), so every tag that cbor2 knows is made inert here.
"""

from io import BytesIO
from typing import Any, Final, NamedTuple

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
    require_few_items(body)
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


def require_few_items(body: bytes) -> None:
    """Walk the item heads without building anything, and stop at the first item too many.

    Raises: CodecError (`size`, `cbor`).
    """
    if len(body) <= ITEMS_MAX:  # an item has at least a byte: up to here, the body limits itself
        return
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


# Major types, as far as anyone asks for them.
UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG = range(7)


class ItemHead(NamedTuple):
    """Hold the head of an item; `end` is where its content or the next item begins."""

    major: int
    argument: int
    end: int


def read_head(body: bytes, at: int) -> ItemHead:
    """Read the head of the item at an offset. Raises: CodecError (`cbor`)."""
    if at >= len(body):
        raise CodecError("the body ends before an item", "cbor")
    major, info = body[at] >> 5, body[at] & 31
    if info < 24:
        return ItemHead(major, info, at + 1)
    end = at + 1 + (1 << (info - 24))
    if info > 27 or end > len(body):
        raise CodecError("a CBOR head is cut off, or of indefinite or reserved length", "cbor")
    return ItemHead(major, int.from_bytes(body[at + 1 : end], "big"), end)


def item_end(body: bytes, at: int) -> int:
    """Return where the item at an offset ends, walking over its contents. Raises: CodecError."""
    wanted = 1
    while wanted:
        major, argument, at = read_head(body, at)
        wanted -= 1
        if major in (BYTES, TEXT):
            at += argument
        elif major == ARRAY:
            wanted += argument
        elif major == MAP:
            wanted += 2 * argument
        elif major == TAG:
            wanted += 1
    if at > len(body):
        raise CodecError("a CBOR length goes past the end of the body", "cbor")
    return at


def write_map_head(count: int) -> bytes:
    """Return the head of a map of `count` pairs."""
    head = bytearray(cbor2.dumps(count))
    head[0] |= MAP << 5
    return bytes(head)
