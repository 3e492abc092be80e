"""The bytes of a leaf's link by kind, as the gateway benchmark counts them."""

from __future__ import annotations

import pytest

from tests.support import link_kinds
from tests.support.link_kinds import LinkKinds, kind_of
from tests.support.s2 import unpack

BEGIN = b"\xff\x06\x00\x00S2sTwO"
# Eight letters, a copy of four of them, and one more where that copy ended.
BLOCK = b"\x10" + b"\x1cabcdefgh" + b"\x01\x04" + b"\x01\x00"


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + (len(data) + 4).to_bytes(3, "little") + b"crc!" + data


def test_a_block_of_s2_is_unpacked_with_copies_at_the_last_offset() -> None:
    assert unpack(BLOCK) == b"abcdefghefghefgh"
    longer = b"\x80\x02" + b"\x1cabcdefgh" + b"\x01\x04" + bytes([5 << 2 | 1, 0, 236])
    assert unpack(longer) == b"abcdefgh" + b"efgh" * 62


@pytest.mark.parametrize("block", [b"", b"\x11" + BLOCK[1:], b"\x04\x01\x04"])
def test_what_is_no_block_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="block"):
        unpack(block)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_each_byte_that_the_link_carried_counts_once_by_the_messages_in_it(step: int) -> None:
    push = b"LMSG u.VID-001.tok.b 16\r\n" + unpack(BLOCK) + b"\r\n"
    beat = b"HMSG dn.VID-001.tok 16 16\r\nNATS/1.0 100 I\r\n\r\n"
    carried = b"INFO {}\r\n" + BEGIN + chunk(1, b"PING\r\n") + BEGIN
    carried += chunk(1, push[:20]) + chunk(1, push[20:] + beat)
    kinds = LinkKinds()
    one = kinds.connection()
    for at in range(0, len(carried), step):
        one.take(carried[at : at + step])
    assert kinds.messages == dict.fromkeys(
        (link_kinds.LOGIN, link_kinds.PINGS, link_kinds.READINGS, link_kinds.HEARTBEATS), 1
    )
    assert kinds.bytes[link_kinds.PINGS] == 24, "six, and what frames each write"
    assert sum(kinds.bytes.values()) == len(carried)


@pytest.mark.parametrize(
    ("subject", "body", "kind"),
    [
        ("clk.VID-001", b"{}", link_kinds.CLOCK),
        ("u.VID-001.tok.e.mark", b"", link_kinds.OWN_EVENTS),
        ("u.VID-001.tok.d.00ff", b"", link_kinds.DICTIONARIES),
        ("w.VID-001.tok.k.bulk", b"", link_kinds.WATERMARKS),
        ("w.VID-001.tok.c.x", b"", link_kinds.COMMANDS),
        ("dlv.VID-001.tok_bulk", b"NATS/1.0\r\nNats-Expected: 1\r\n\r\n", link_kinds.READINGS),
        ("$JS.FC.OUT_bulk.tok.x", b"", link_kinds.HEARTBEATS),
        ("$JS.VID-001.API.CONSUMER.RESET.OUT_bulk.tok", b"", link_kinds.SOURCES),
        ("blob.VID-001", b"", link_kinds.OTHER),
    ],
)
def test_a_message_has_the_kind_of_its_subject(subject: str, body: bytes, kind: str) -> None:
    assert kind_of(subject, body) == kind
