"""Messages of OUT as anybody can read them: their dictionaries are looked for there as well.

A ledger that was put back from a copy lacks the dictionaries that it sent since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec.wire.dictionaries import digest_in, plain

if TYPE_CHECKING:
    from backhaul_agent.commit.bundle_packer import BundlePacker
    from backhaul_agent.uplink.out_stream import OutStream


async def plain_body(body: bytes, out: OutStream, packer: BundlePacker) -> bytes:
    """Return a message without need of its dictionary; one that only OUT has is taken in.

    Raises:
        CodecError: the message is damaged; `dictionary`: neither has it.
    """
    digest = digest_in(body)
    if digest is not None and packer.lookup(digest) is None:
        found = await out.dictionary(digest)
        if found is not None:
            packer.learn(*found)
    return plain(body, packer.lookup)
