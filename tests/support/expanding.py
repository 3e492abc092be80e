"""Ingest messages twice, make large files of them, roll them up, and say how much memory each took.

Each of the three runs in a process of its own, as `ingest`, `maintain`, and `rollup` do: memory that one has
given back to its allocator, and not to the kernel, does not count for the next.

python -m tests.support.expanding ROOT KIND MESSAGES
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import open_table
from backhaul_spark.tables.part_writer import TaskReport, write_parts
from backhaul_spark.tables.schemas import POINTS_TABLE, ROLLUPS_TABLE
from tests.support.bombs import T0_NS, blob_bomb, points_bomb, series_bomb, text_bomb
from tests.support.spark_frames import stored

if TYPE_CHECKING:
    from collections.abc import Callable


def honest(seq: int) -> bytes:
    """A frame of 250 readings of four series, 1 Hz."""
    points = [
        Point("battery", f"s{at % 4}", T0_NS + (seq * 250 + at) * 1_000_000_000, at % 91 / 10)
        for at in range(250)
    ]
    return encode_frame(points, epoch=1, seq=seq)


def long_names(seq: int) -> bytes:
    """As many points as a frame has room for whose node has the longest name there is."""
    return points_bomb(seq, points=200_000, node="n" * 255)


def texts(seq: int) -> bytes:
    """A text of 138 kB in 400 points."""
    return text_bomb(seq)


KINDS: dict[str, Callable[[int], bytes]] = {
    "honest": honest,
    "points": points_bomb,
    "texts": texts,
    "blobs": blob_bomb,
    "series": series_bomb,
    "names": long_names,
}


def peak_mb() -> float:
    """Return the most memory since the last question, in MB, and begin anew."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    Path("/proc/self/clear_refs").write_text("5")
    return int(found[1]) / 1024


def ingest(root: str, kind: str, count: int) -> dict[str, float]:
    """Ingest so many messages, and then the same again; return rows, seconds and peaks in MB."""
    made = KINDS[kind]
    leaf = f"f.{'n' * 255}" if kind == "names" else "f.battery"
    bodies = [made(seq) for seq in range(1, count + 1)]
    tables = Ingest(root, SYSTEM_CLOCK)
    before_mb = peak_mb()
    peaks, rows, seconds = [], 0, []
    for batch in range(2):
        start_s = time.perf_counter()
        # The first one comes twice: nothing is a repeat as a whole, and something in each stream is.
        again = bodies if batch == 0 else [bodies[0], made(count + 1)]
        messages = message_batch("UP_00", stored(again, leaf=leaf, first_seq=1 + batch * count))
        [row] = write_parts([messages], f"{root}/points", tables.tables.next_ingest, 0)
        peaks.append(peak_mb())
        report = TaskReport.from_row(**row.to_pylist()[0])
        outcome = tables.commit("test", batch, [report])
        assert outcome.rejected == 0, report.rejects[:1]
        assert outcome.repeated == batch
        peaks.append(peak_mb())
        rows += outcome.points
        seconds.append(time.perf_counter() - start_s)
    compact_mb, _ = _apart(root, "compact")
    rollup_mb, rollup_s = _apart(root, "rollup")
    only_hours = pc.field("width") == "1h"
    hours = open_table(root, ROLLUPS_TABLE).to_pyarrow_dataset().to_table(filter=only_hours)
    return {
        "rows": rows,
        "seconds": round(seconds[0], 1),
        "bytes": sum(map(len, bodies)),
        "start_mb": round(before_mb),
        "task_mb": round(max(peaks[0], peaks[2])),
        "driver_mb": round(max(peaks[1], peaks[3])),
        "compact_mb": round(compact_mb),
        "rollup_mb": round(rollup_mb),
        "rollup_s": round(rollup_s, 1),
        "counted": sum(pc.sum(hours.column(name)).as_py() or 0 for name in ("count", "texts")),
        "held": open_table(root, POINTS_TABLE).to_pyarrow_dataset().count_rows(),
        "files": len(open_table(root, POINTS_TABLE).file_uris()),
    }


def _apart(root: str, step: str) -> tuple[float, float]:
    """Take a step in a process of its own; return its peak in MB and its seconds."""
    words = [sys.executable, "-m", "tests.support.expanding", root, step]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak, seconds = json.loads(done.stdout)
    return peak, seconds


def _step(root: str, step: str) -> tuple[float, float]:
    start_s = time.perf_counter()
    if step == "compact":
        compact(root, POINTS_TABLE, SYSTEM_CLOCK)
    else:
        Rollup(root, SYSTEM_CLOCK, run_here).run()
    return peak_mb(), time.perf_counter() - start_s


def _main(root: str, kind: str, *count: str) -> None:
    found = ingest(root, kind, int(count[0])) if count else _step(root, kind)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
