"""A recording of many columns as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from backhaul_codec.recordings.mapping import load
from backhaul_codec.recordings.points import RowMapper
from backhaul_codec.recordings.readers import open_recording

if TYPE_CHECKING:
    from backhaul_codec import Point
WIDE = """
[time]
column = "t"
unit = "{unit}"
dates = false
[[series]]
column = "soc"
node = "battery"
type = "soc"
[[series]]
column = "mode"
node = "drive"
type = "mode"
key = "{{trip}}"
"""
CSV = """t,soc,mode,trip
1,81.5,N,a
2,,D,b
,80.0,D,b
x,80.0,D,b
4,-0.0,"a,b",
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def points(recording: Path, mapping: Path) -> tuple[list[Point], RowMapper]:
    loaded = load(mapping)
    with open_recording(recording, loaded.columns()) as opened:
        mapper = RowMapper(loaded, text_only=opened.text_only)
        rows = [row for chunk in opened.chunks() for row in mapper.rows(chunk)]
    return [point for row in rows if row.time_ns is not None for point in row.points], mapper
