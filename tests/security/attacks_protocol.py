"""Attacks by malformed protocol: the server stays up, and serves the others meanwhile."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from .attack import attack

if TYPE_CHECKING:
    from .ground import Ground

_SEED = 20261121
_LINES = (
    b"LMSG clk.VID-001 2\r\n{}\r\n",
    b"LMSG clk.VID-001 + reply queue 2\r\n{}\r\n",
    b"HMSG clk.VID-001 12 14\r\nNATS/1.0\r\n\r\n{}\r\n",
    b"LS+ _INBOX_VID-001.x queue 1\r\n",
    b"LS- _INBOX_VID-001.x queue\r\n",
    b'CONNECT {"name":"x","headers":true}\r\n',
    b'INFO {"server_id":"x","nonce":"y"}\r\n',
    b"PING\r\nPONG\r\n-ERR 'x'\r\n+OK\r\n",
)
_HANDMADE = (
    b"LMSG clk.VID-001 -1\r\n",
    b"LMSG clk.VID-001 99999999999999999999\r\n",
    b"LMSG clk.VID-001 2147483648\r\nx",
    b"LMSG\r\n",
    b"HMSG clk.VID-001 14 12\r\nNATS/1.0\r\n\r\n{}\r\n",
    b"HMSG clk.VID-001 -5 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG clk.VID-001 12 12\r\nnot headers!\r\n",
    b"LS+ \r\n",
    b"LS+ a b c d e\r\n",
    b"LS+ _INBOX_VID-001.x q 4294967296\r\n",
    b"LS+ _INBOX_VID-001..x\r\n",
    b"LS+ _INBOX_VID-001.\x00\xff\r\n",
    b"LS- never.was\r\n",
    b"SUB dn.> 1\r\nPUB in.VID-002.p.x 0\r\n\r\n",
    b"RS+ $G dn.> 1\r\nRMSG $G in.VID-002.p.x 0\r\n\r\n",
    b"A+ HUB\r\nA- HUB\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n",
    b"LMSG " + b"a." * 100_000 + b" 0\r\n\r\n",
    b"LS+ " + b"x" * 3_000_000,
    b"CONNECT " + b"{" * 500_000 + b"\r\n",
    b"\x00" * 100_000,
)


@attack()
async def lines_made_wrong_by_hand(ground: Ground) -> None:
    for line in _HANDMADE:
        for after_login in (True, False):
            leaf = await (ground.leaf() if after_login else ground.leaf(jwt="")).open()
            await leaf.send(line)
            await leaf.close()


@attack()
async def lines_made_wrong_by_chance(ground: Ground) -> None:
    chance = random.Random(_SEED)
    for _ in range(150):
        line = bytearray(b"".join(chance.choices(_LINES, k=3)))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(line))
            match chance.randrange(3):
                case 0:
                    line[at] = chance.randrange(256)
                case 1:
                    del line[at : at + chance.randrange(8)]
                    line = line or bytearray(b"\r\n")
                case 2:
                    line[at:at] = chance.randbytes(chance.randrange(8))
        leaf = await ground.leaf().open()
        await leaf.send(bytes(line))
        await leaf.close()
