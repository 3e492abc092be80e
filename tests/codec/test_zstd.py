"""zstd where this machine has it, and a clear refusal where it has not."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from backhaul_codec import CodecError, Point, decode, encode_frame
from backhaul_codec.wire import compression
from backhaul_codec.wire.envelope import HEADER_BYTES, unseal

POINTS = [Point("n", "t", i, i / 10) for i in range(100)]
MIB = 1 << 20


def _absent(name: str) -> Any:
    raise ImportError(name)


def test_a_machine_without_zstd_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "import_module", _absent)
    with pytest.raises(CodecError, match="zstandard") as caught:
        encode_frame(POINTS, epoch=1, seq=1, compression="zstd")
    assert caught.value.code == "codec"
    message = bytearray(encode_frame(POINTS, epoch=1, seq=1))
    message[1] = compression.ZSTD
    with pytest.raises(CodecError) as caught:
        decode(bytes(message))
    assert caught.value.code == "codec"


@pytest.fixture
def message() -> bytes:
    try:
        return encode_frame(POINTS, epoch=1, seq=1, compression="zstd")
    except CodecError as error:
        pytest.skip(error.reason)


def test_zstd_frames_come_back(message: bytes) -> None:
    assert message[1] == compression.ZSTD
    assert decode(message).points == POINTS


def test_zstd_frames_are_whole_and_alone(message: bytes) -> None:
    for length in range(HEADER_BYTES + 1, len(message)):
        with pytest.raises(CodecError):
            decode(message[:length])
    for more in (b"\x00", message[HEADER_BYTES:]):
        with pytest.raises(CodecError):
            decode(message + more)


def test_a_zstd_bomb_is_refused(message: bytes) -> None:
    bomb = compression.compress(bytes(100 * MIB), compression.ZSTD)
    for raw_len in (1, 16 * MIB):
        with pytest.raises(CodecError) as caught:
            decode(struct.pack("<BBIQII", 1, 2, 1, 1, raw_len, 0) + bomb)
        assert caught.value.code == "length"


def test_bytes_changed_on_the_way_are_found(message: bytes) -> None:
    for at in range(HEADER_BYTES, len(message)):
        changed = message[:at] + bytes([message[at] ^ 0x55]) + message[at + 1 :]
        try:
            _, body = unseal(changed)
        except CodecError:
            continue
        assert body == unseal(message)[1]
