"""Compress and decompress bodies, never producing more bytes than the header declares.

Raw deflate (RFC 1951) is the default and needs the standard library alone. zstd (RFC 8878) comes
from Python 3.14's `compression.zstd` or from python-zstandard, whichever is there; a machine with
neither refuses zstd messages and reads all others.
"""

import zlib
from importlib import import_module
from typing import Any, Literal, TypeAlias

from backhaul_codec.errors import CodecError

Compression: TypeAlias = Literal["none", "deflate", "zstd"]

COMPRESSIONS: dict[int, Compression] = {0: "none", 1: "deflate", 2: "zstd"}
CODEC_IDS: dict[str, int] = {name: codec for codec, name in COMPRESSIONS.items()}
NONE, DEFLATE, ZSTD = 0, 1, 2
DICTIONARY = 3
"""Deflate with a preset dictionary, which the message names (wire/dictionaries.py)."""

DEFLATE_LEVEL = 6
ZSTD_LEVEL = 3
# A body is at most 16 MiB, so no honest stream needs a larger window than that.
ZSTD_WINDOW_LOG_MAX = 24


def compress(body: bytes, codec: int) -> bytes:
    """Compress a body. Raises: CodecError (`codec`) where this machine has no zstd."""
    if codec == DEFLATE:
        squeezer = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -15)
        return squeezer.compress(body) + squeezer.flush()
    if codec == ZSTD:
        return _zstd_compress(body)
    return body


def decompress(payload: bytes | memoryview, codec: int, raw_len: int) -> bytes:
    """Return exactly `raw_len` bytes (at least 1).

    Raises: CodecError (`compressed`, `length`, `codec` where this machine has no zstd, or `dictionary`
    for a payload that wants one: `dictionaries.plain` comes before).
    """
    if codec == DEFLATE:
        return inflate(payload, raw_len)
    if codec == ZSTD:
        return _zstd_decompress(payload, raw_len)
    if codec == DICTIONARY:
        raise CodecError("the message is packed against a dictionary", "dictionary")
    if len(payload) != raw_len:
        raise _wrong_length(raw_len)
    return bytes(payload)


def inflate(payload: bytes | memoryview, raw_len: int, dictionary: bytes = b"") -> bytes:
    """Return exactly `raw_len` bytes of a raw deflate stream. Raises: CodecError, as `decompress`."""
    inflater = zlib.decompressobj(-15, zdict=dictionary) if dictionary else zlib.decompressobj(-15)
    try:
        # One byte more than declared: at exactly raw_len zlib may stop before the end marker,
        # and a stream that is too long would look like one that fits. (0 would mean no limit.)
        body = inflater.decompress(payload, raw_len + 1)
    except zlib.error as error:
        raise CodecError(f"the deflate stream is damaged: {error}", "compressed") from error
    return _whole(body, raw_len, inflater, "deflate stream")


def _zstd_compress(body: bytes) -> bytes:
    stdlib, library = _zstd_modules()
    if stdlib is not None:
        packed: bytes = stdlib.compress(body, ZSTD_LEVEL)
    else:
        packed = library.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
    return packed


def _zstd_decompress(payload: bytes | memoryview, raw_len: int) -> bytes:
    stdlib, library = _zstd_modules()
    if stdlib is not None:
        return _zstd_with_stdlib(stdlib, payload, raw_len)
    return _zstd_with_library(library, payload, raw_len)


def _zstd_with_stdlib(zstd: Any, payload: bytes | memoryview, raw_len: int) -> bytes:
    limits = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}
    expander = zstd.ZstdDecompressor(options=limits)
    try:
        body: bytes = expander.decompress(payload, raw_len + 1)
    except zstd.ZstdError as error:
        raise CodecError(f"the zstd frame is damaged: {error}", "compressed") from error
    return _whole(body, raw_len, expander, "zstd frame")


def _zstd_with_library(zstd: Any, payload: bytes | memoryview, raw_len: int) -> bytes:
    try:
        # python-zstandard trusts a size in the frame over max_output_size: look at it first.
        if zstd.frame_content_size(payload) not in (-1, raw_len):
            raise _wrong_length(raw_len)
        expander = zstd.ZstdDecompressor(max_window_size=1 << ZSTD_WINDOW_LOG_MAX)
        body: bytes = expander.decompress(
            payload, max_output_size=raw_len, read_across_frames=False, allow_extra_data=False
        )
    except zstd.ZstdError as error:
        raise CodecError(f"the zstd frame is damaged: {error}", "compressed") from error
    if len(body) != raw_len:
        raise _wrong_length(raw_len)
    return body


def _zstd_modules() -> tuple[Any, Any]:
    """Return (compression.zstd, None) or (None, zstandard)."""
    try:
        return import_module("compression.zstd"), None
    except ImportError:
        pass
    try:
        return None, import_module("zstandard")
    except ImportError:
        raise CodecError(
            "this machine cannot read or write zstd: use Python 3.14, or install zstandard", "codec"
        ) from None


def _whole(body: bytes, raw_len: int, expander: Any, what: str) -> bytes:
    if len(body) != raw_len:
        raise _wrong_length(raw_len)
    if not expander.eof:
        raise CodecError(f"the {what} has no end", "compressed")
    if expander.unused_data:
        raise CodecError(f"bytes follow the {what}", "trailing")
    return body


def _wrong_length(raw_len: int) -> CodecError:
    return CodecError(f"the body does not have the declared {raw_len} bytes", "length")
