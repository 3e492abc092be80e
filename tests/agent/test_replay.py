"""Replay: recordings become exactly the points the mapping says, and nothing is dropped silently."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from backhaul_agent.replay.run import ReplayPace
from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.mapping import load
from backhaul_codec.recordings.points import RowMapper
from backhaul_codec.recordings.readers import open_recording
from backhaul_codec.recordings.times import row_time
from tests.agent.wide_recording import CSV, WIDE, points, write
from tests.support.agent_clock import FakeClock

MAPPINGS = Path(__file__).parents[2] / "agent" / "mappings"
RECORDINGS = Path(
    os.environ.get("BACKHAUL_DATA", Path(__file__).parents[2] / ".." / "shared" / "data")
)


def test_a_wide_csv(tmp_path: Path) -> None:
    found, mapper = points(
        write(tmp_path / "r.csv", CSV), write(tmp_path / "m.toml", WIDE.format(unit="s"))
    )
    assert [(p.time, p.node, p.type, p.key, repr(p.value)) for p in found] == [
        (1_000_000_000, "battery", "soc", "", "81.5"),
        (1_000_000_000, "drive", "mode", "a", "'N'"),
        (2_000_000_000, "drive", "mode", "b", "'D'"),
        (4_000_000_000, "battery", "soc", "", "-0.0"),
        (4_000_000_000, "drive", "mode", "", "'a,b'"),
    ]
    tally = mapper.tally
    assert (tally.rows, tally.points, tally.values_null) == (5, 9, 1)
    assert tally.untimed == [(2, 3)]


def test_a_long_csv_with_filter_and_templates(tmp_path: Path) -> None:
    mapping = """
[time]
column = "when"
unit = "rfc3339"
[long]
value = "v"
node = "px4-{topic}"
type = "{signal}"
key = "{log}"
dtype = "int64"
[[filter]]
column = "log"
only = ["a", 2]
"""
    rows = (
        "when,v,topic,signal,log\n2023-11-14T22:13:20.000000001Z,5,imu,gyro[0],a\n"
        "2023-11-14T22:13:20Z,6,imu,x,b\n2023-11-14T22:13:20Z,7.5,imu,x,2\n"
    )
    found, mapper = points(write(tmp_path / "r.csv", rows), write(tmp_path / "m.toml", mapping))
    assert [(p.time, p.node, p.type, p.key, p.value) for p in found] == [
        (1_700_000_000_000_000_001, "px4-imu", "gyro[0]", "a", 5)
    ]
    assert mapper.tally.rows_filtered == 1
    assert mapper.tally.values_unfit == {"v": 1}


def test_a_row_that_nobody_came_to_is_not_counted_as_filtered_out(tmp_path: Path) -> None:
    """As after Ctrl-C in the middle of a chunk."""
    mapping = """
[time]
column = "t"
unit = "s"
[[series]]
column = "a"
node = "n"
type = "a"
[[filter]]
column = "log"
only = ["x"]
"""
    rows = "t,a,log\n1,1,y\n2,2,x\n3,3,y\n4,4,x\n5,5,y\n6,6,y\n"
    loaded = load(write(tmp_path / "m.toml", mapping))
    with open_recording(write(tmp_path / "r.csv", rows), loaded.columns()) as opened:
        [chunk] = opened.chunks()
    mapper = RowMapper(loaded, text_only=True)
    given = mapper.rows(chunk)
    seen = []
    for _ in range(2):
        next(given)
        seen.append((mapper.tally.rows, mapper.tally.rows_filtered))
    assert seen == [(2, 1), (4, 2)]
    assert list(given) == []
    assert (mapper.tally.rows, mapper.tally.rows_filtered) == (6, 4)


def test_parquet_keeps_types_and_float32_exactly(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    single = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    table = pa.table(
        {
            "t": pa.array([1, None], pa.timestamp("us")),
            "soc": pa.array([0.1, 1.0], pa.float32()),
            "mode": pa.array([2**63 - 1, 0], pa.int64()),
            "trip": ["a", "b"],
        }
    )
    pq.write_table(table, tmp_path / "r.parquet")
    found, mapper = points(
        tmp_path / "r.parquet", write(tmp_path / "m.toml", WIDE.format(unit="ns"))
    )
    assert [(p.time, p.value) for p in found] == [(1000, single), (1000, 2**63 - 1)]
    assert mapper.tally.untimed == [(1, 1)]


@pytest.mark.parametrize(
    ("raw", "unit", "time"),
    [
        (5, "ns", 5),
        (5, "us", 5_000),
        (5, "ms", 5_000_000),
        (5, "s", 5_000_000_000),
        (1617016425.123456789, "s", 1_617_016_425_123_456_700),
        ("1617016425.123456789", "s", 1_617_016_425_123_456_789),
        ("-1", "ns", -1),
        (None, "ns", None),
        ("", "ns", None),
        ("soon", "s", None),
        (float("nan"), "s", None),
        (float("inf"), "s", None),
        (2**63, "ns", None),
        (2**62, "s", None),
        (True, "ns", None),
        ("2023-11-14T22:13:20", "rfc3339", None),
    ],
)
def test_row_times(raw: Any, unit: str, time: int | None) -> None:
    found = row_time(raw, unit)
    assert found == time or (isinstance(raw, float) and time and abs(found - time) < 1000)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[time", "m.toml: "),
        ("", "time"),
        ('[time]\ncolumn = "t"\n', "either"),
        (WIDE.format(unit="s") + '[long]\nvalue = "v"\nnode = "n"\ntype = "t"\n', "either"),
        (WIDE.format(unit="h"), "unit"),
        (WIDE.format(unit="s") + "colour = 1\n", "colour"),
    ],
)
def test_mappings_that_make_no_sense(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(MappingError, match=words):
        load(write(tmp_path / "m.toml", text))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.csv", "t,soc,mode\n1,2,3\n", r"column 'trip': not in the recording, which has t, soc"),
        ("r.csv", "", "column 't'"),
        ("r.csv", "t,soc,mode,trip\n1,\xff\n".encode("latin-1"), "is not CSV"),
        ("r.parquet", "no parquet", "r.parquet: "),
        ("r.txt", "", "only .csv and .parquet"),
        ("missing.csv", None, "No such file"),
    ],
)
def test_recordings_that_do_not_fit(
    tmp_path: Path, name: str, content: str | bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(MappingError, match=words):
        points(tmp_path / name, write(tmp_path / "m.toml", WIDE.format(unit="s")))


def test_pace_follows_the_recording_and_cuts_pauses() -> None:
    clock = FakeClock()
    pace = ReplayPace(2.0, clock)
    assert pace.wait_s(10_000_000_000) == 0
    assert pace.wait_s(12_000_000_000) == 1.0
    clock.advance(1.0)
    assert pace.wait_s(11_000_000_000) == 0  # back in time: the next trip
    assert pace.wait_s(3_600_000_000_000) == 5.0
    assert ReplayPace(0.0, clock).wait_s(5) == 0


def test_a_row_without_a_time_follows_like_those_before_it_and_delays_nobody() -> None:
    clock = FakeClock()
    pace = ReplayPace(1.0, clock)
    waits = [pace.wait_s(None), pace.wait_s(None), pace.wait_s(10 * 10**9)]
    assert waits == [0.0, 1.0, 1.0]  # a second apart, where nothing else is known
    clock.advance(1.0)
    waits = [pace.wait_s(time and time * 10**9) for time in (12, None, None, 17, 18)]
    assert waits == [2.0, 4.0, 6.0, 7.0, 8.0]
    waits = [pace.wait_s(time and time * 10**9) for time in (None, None, 19, None)]
    assert waits == [9.0, 10.0, 10.0, 11.0]


@pytest.mark.parametrize("name", ["twizy", "kit", "ebike", "px4"])
def test_the_mappings_shipped_fit_their_recordings(name: str) -> None:
    files = list(RECORDINGS.glob(f"{name}*.parquet"))
    if not files:
        pytest.skip(f"no recording of {name} in ../shared/data")
    pytest.importorskip("pyarrow")
    mapping = load(MAPPINGS / f"{name}.toml")
    with open_recording(files[0], mapping.columns()) as opened:
        chunk = next(opened.chunks())
        mapper = RowMapper(mapping, text_only=False)
        rows = list(mapper.rows(chunk))
    assert len(rows) > 100
    assert mapper.tally.values_unfit == {}


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "r.parquet").write_bytes(b"")
    with pytest.raises(MappingError, match=r"pip install '\.\[replay\]'"):
        points(tmp_path / "r.parquet", write(tmp_path / "m.toml", WIDE.format(unit="s")))
