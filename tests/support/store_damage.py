"""Damage to the store of a nats-server that stands still: what a bad disk, or a hand, does to its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def blocks(store: Path, stream: str) -> list[Path]:
    """Return the files with a stream's messages, the oldest first."""
    found = store.glob(f"**/streams/{stream}/msgs/*.blk")
    return sorted(found, key=lambda path: int(path.stem))


def all_blocks(store: Path) -> list[Path]:
    """Return the files with messages of all streams, in a fixed order."""
    return sorted(store.glob("**/streams/*/msgs/*.blk"))


def cut_short(block: Path) -> None:
    """Lose the second half of a file."""
    os.truncate(block, block.stat().st_size // 2)


def flip_a_bit(block: Path) -> None:
    """Turn one bit over in the middle of a file."""
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes(content)


def forget_indexes(store: Path) -> None:
    """Have the server read and prove every block at its next start, as docs/cluster.md has operators do."""
    for index in store.glob("**/streams/*/msgs/index.db"):
        index.unlink()
