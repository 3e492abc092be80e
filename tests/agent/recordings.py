"""A recording as CSV, and the mapping by which it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.ingest.replay_book import Bundle

if TYPE_CHECKING:
    from pathlib import Path


BEGAN_S = 1_617_016_425
MAP = """
[time]
column = "t"
unit = "{unit}"
[[series]]
column = "soc"
node = "battery"
type = "soc"
dtype = "{dtype}"
[[series]]
column = "speed"
node = "drive"
type = "speed"
"""


def mapping(path: Path, unit: str = "s", dtype: str = "auto") -> Path:
    path.write_text(MAP.format(unit=unit, dtype=dtype))
    return path


def bundle(first: int, last: int, *, source: int = 1) -> Bundle:
    def digest(row: int) -> str:
        return f"{row:032x}"

    return Bundle(f"{source:032x}", first, last, digest(first), digest(last), [])
