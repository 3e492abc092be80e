"""Recordings are read in bounded memory, whatever is in them: what cannot be read so is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from backhaul_codec.errors import MappingError
from backhaul_codec.recordings import readers
from backhaul_codec.recordings.readers import open_recording

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
# What Python and pyarrow take of themselves is about 110 MB.
PEAK_MB_MAX = 250
_CHILD = """
import json, re, sys
from pathlib import Path
from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.readers import open_recording
rows, said = 0, ""
try:
    with open_recording(Path(sys.argv[1]), sys.argv[2:]) as recording:
        for chunk in recording.chunks():
            rows += chunk.rows
except MappingError as error:
    said = str(error)
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(json.dumps({"rows": rows, "said": said, "peak_mb": peak_kb / 1024}))
"""


def read_apart(path: Path, *columns: str) -> tuple[int, str]:
    """Read a recording in a process of its own; return its rows and the error, in bounded memory."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), *columns],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["peak_mb"] < PEAK_MB_MAX, found
    return found["rows"], found["said"]


def sparse_csv(path: Path, size: int) -> Path:
    """Write a line of zeros that has no end for so many bytes; they take no room on the disk."""
    with path.open("wb") as file:
        file.write(b"t,soc\n1,2\n")
        file.truncate(size)
    return path


def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    rows, said = read_apart(sparse_csv(tmp_path / "line.csv", 1 << 30), "t", "soc")
    assert rows == 0
    assert "row 1 is longer than" in said


def test_a_line_of_many_fields_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fields.csv"
    with path.open("wb") as file:
        file.write(b"t,soc\n1,2\n")
        for _ in range(200):
            file.write(b"," * MIB)
    assert "longer than" in read_apart(path, "t", "soc")[1]


def test_a_header_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "header.csv"
    with path.open("wb") as file:
        for _ in range(200):
            file.write(b"a," * MIB)
    assert "longer than" in read_apart(path, "t")[1]


def test_a_row_over_many_lines_counts_as_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    with path.open("w") as file:
        file.write("t,soc\n1,2\n3,")
        for _ in range(200):
            file.write('"' + "x\n" * 50_000 + '",')
    assert "longer than" in read_apart(path, "t", "soc")[1]


@pytest.mark.slow
def test_chunks_of_long_rows_are_small(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("t,soc,note\n")
        for row in range(4000):
            file.write(f"{row},1,{'n' * 100_000}\n")
    assert read_apart(path, "t", "soc", "note") == (4000, "")


def test_a_line_of_the_longest_length_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ROW_CHARS_MAX", 20)
    path = tmp_path / "short.csv"
    path.write_text("t,soc\n1,34567890123456789\n2,3456789012345678901\n")
    with open_recording(path, ["t", "soc"]) as recording:
        chunks = recording.chunks()
        with pytest.raises(MappingError, match="row 1 is longer than 20 characters"):
            next(chunks)


def test_a_dictionary_of_one_long_text_is_read_without_a_copy_a_row(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * 100_000, pa.int32()), pa.array(["x" * MIB])
    )
    times = pa.array(range(100_000))
    pq.write_table(pa.table({"t": times, "note": texts}), path, store_schema=False)
    assert path.stat().st_size < MIB
    assert read_apart(path, "t", "note") == (100_000, "")


@pytest.mark.slow
def test_a_page_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.parquet"
    with pq.ParquetWriter(
        path,
        pa.schema({"t": pa.int64(), "note": pa.string()}),
        use_dictionary=False,
        compression="zstd",
        data_page_size=2000 * MIB,
        write_statistics=False,
    ) as writer:
        notes = pa.array(["x" * MIB]).take(pa.array([0] * 300))
        writer.write_table(pa.table({"t": pa.array(range(300)), "note": notes}))
    assert path.stat().st_size < 500_000
    assert "note" in read_apart(path, "t", "note")[1]


@pytest.mark.slow
def test_long_texts_come_in_few_rows_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    with pq.ParquetWriter(
        path, pa.schema({"t": pa.int64(), "note": pa.string()}), use_dictionary=False
    ) as writer:
        for part in range(8):
            rows = range(part * 100, part * 100 + 100)
            notes = pa.array([f"{row:06d}" * 20_000 for row in rows])
            writer.write_table(pa.table({"t": pa.array(rows), "note": notes}))
    assert read_apart(path, "t", "note") == (800, "")


def test_texts_stay_what_they_are_across_row_groups_and_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    notes = [None if row % 7 == 0 else f"note {row // 10}" for row in range(10_000)]
    blobs = [None if row % 5 == 0 else bytes([row % 250]) for row in range(10_000)]
    kinds = pa.array([f"k{row % 3}" for row in range(10_000)]).dictionary_encode()
    large = pa.array(notes, pa.large_string())
    table = {"t": pa.array(range(10_000)), "note": pa.array(notes), "blob": pa.array(blobs)}
    pq.write_table(pa.table(table | {"kind": kinds, "large": large}), path, row_group_size=3000)
    found: dict[str, list[object]] = {}
    names = ["t", "note", "blob", "kind", "large"]
    with open_recording(path, names) as recording:
        for chunk in recording.chunks():
            assert chunk.first_row == len(found.get("t", []))
            for name, values in chunk.columns.items():
                assert len(values) == chunk.rows
                found.setdefault(name, []).extend(values)
    assert found["t"] == list(range(10_000))
    assert found["note"] == notes
    assert found["large"] == notes
    assert found["blob"] == blobs
    assert found["kind"] == [f"k{row % 3}" for row in range(10_000)]


def test_a_column_of_lists_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table({"t": [1, 2], "cells": [[1.0, 2.0], [3.0]]}), path)
    with (
        pytest.raises(MappingError, match="cells"),
        open_recording(path, ["t", "cells"]) as recording,
    ):
        list(recording.chunks())


def test_a_time_that_no_ns_can_say_is_a_number_still(tmp_path: Path) -> None:
    path = tmp_path / "times.parquet"
    us = pa.array([1, 2**62], pa.timestamp("us"))
    pq.write_table(pa.table({"t": us}), path)
    with open_recording(path, ["t"]) as recording:
        [chunk] = recording.chunks()
    assert chunk.columns["t"] == [1000, 2**62 * 1000]
