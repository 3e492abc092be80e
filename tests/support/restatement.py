"""A backlog of two days from some devices in the midst of live traffic: what is restated, and how fast.

Modelled: devices that each send two series, a frame an hour; of some of them half of each of two
days stays away and comes in portions between the live hours of the third day, each followed by a
rollup. Checked, not only measured: every window of those days equals a rollup from scratch bit for
bit; no window of another device changed its version; what was known before can still be asked for.
Not covered: Spark's own overhead (tasks run in this process), object stores, completeness reports.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_codec import Point, encode_frame
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.stored import Stored
from backhaul_spark.rollup.files import KEYS
from backhaul_spark.rollup.known_at import restated_since, rollups_known_at
from backhaul_spark.rollup.rollup import Restated, Rollup, run_here
from backhaul_spark.tables.files import file_paths
from backhaul_spark.tables.part_writer import TaskReport, write_parts
from tests.support.errors import TrialError

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
MINUTE_NS, HOUR_NS = 60_000_000_000, 3_600_000_000_000
SERIES = ("soc", "temp")
# What a window says, as against when and how often it was computed.
SAID = ("count", "min", "max", "mean", "sum", "first", "last", "nans", "texts")
STORED = "2026-03-01T00:00:00.000000000Z"


@dataclass(frozen=True, slots=True)
class Size:
    """How much: devices, those of them that are late, hours of a day, portions of the backlog."""

    devices: int
    late: int
    hours: int = 24
    portions: int = 6

    def day_of(self, hour: int) -> int:
        """Return the hour of all time in which the `hour`-th hour of traffic lies."""
        return hour // self.hours * 24 + hour % self.hours


@dataclass(slots=True)
class Measured:
    """What a run found; seconds of the rollups, and bytes of the tables."""

    points: int
    late_points: int
    live_s: list[float]
    mixed_s: list[float]
    scratch_s: float
    created: int
    restated: int
    known_s: float
    restated_since_s: float
    windows: int
    superseded: int
    rollups_bytes: int
    superseded_bytes: int
    rewritten_bytes: int


def measure(directory: Path, size: Size) -> Measured:
    """Send everything, roll up as it comes, and check the outcome.

    Raises:
        TrialError: a window is not what it should be.
    """
    fleet = _Fleet(directory / "tables", size)
    live_s: list[float] = []
    for hour in range(2 * size.hours):
        fleet.ingest(fleet.live(hour))
        if hour % size.hours % 6 == 5:
            live_s.append(fleet.rollup()[0])
    fleet.rollup()
    before = fleet.rollups()
    then = datetime.fromtimestamp(SYSTEM_CLOCK.now_ns() / 1e9, UTC)
    backlog = fleet.backlog()
    portion = -(-len(backlog) // size.portions)
    mixed_s, created, restated, rewritten = [], 0, 0, 0
    for number in range(size.portions):
        late = backlog[number * portion : (number + 1) * portion]
        fleet.ingest([*fleet.live(2 * size.hours + number), *late])
        known = file_paths(f"{fleet.root}/rollups")
        seconds, result = fleet.rollup()
        mixed_s.append(seconds)
        created, restated = created + result.created, restated + result.restated
        fresh = file_paths(f"{fleet.root}/rollups") - known
        rewritten += sum(Path(path).stat().st_size for path in fresh)
    after = fleet.rollups()
    scratch_s = same_from_scratch(directory / "anew", Path(fleet.root))
    _only_the_late_changed(size, before, after)
    known_s = _known_as_before(fleet.root, then, before)
    start = time.perf_counter()
    changed = restated_since(fleet.root, then, unfinished=True)
    restated_since_s = time.perf_counter() - start
    if len(changed) != created + _distinct_restated(before, after):
        raise TrialError(f"restated_since lists {len(changed)} windows")
    tables = [DeltaTable(f"{fleet.root}/{name}") for name in ("rollups", "rollups_superseded")]
    sizes = [sum(pa.table(t.get_add_actions())["size_bytes"].to_pylist()) for t in tables]
    return Measured(
        points=fleet.points,
        late_points=len(backlog) * len(SERIES) * 30,
        live_s=live_s,
        mixed_s=mixed_s,
        scratch_s=scratch_s,
        created=created,
        restated=restated,
        known_s=known_s,
        restated_since_s=restated_since_s,
        windows=after.num_rows,
        superseded=tables[1].count(),
        rollups_bytes=sizes[0],
        superseded_bytes=sizes[1],
        rewritten_bytes=rewritten,
    )


class _Fleet:
    """Devices whose messages go straight into the tables."""

    def __init__(self, root: Path, size: Size) -> None:
        self.root, self._size = str(root), size
        self._ingest = Ingest(self.root, SYSTEM_CLOCK)
        self._dice = random.Random(6)
        self._seqs: dict[str, int] = {}
        self._stream_seq = self._batch = 0
        self.points = 0

    def live(self, hour: int) -> list[tuple[str, bytes]]:
        """Return (device, message) of an hour of traffic; the late ones send half of two days."""
        cut = hour < 2 * self._size.hours
        return [
            self._frame(
                number, hour, range(0, 60, 2) if cut and number in self._late else range(60)
            )
            for number in range(self._size.devices)
        ]

    def backlog(self) -> list[tuple[str, bytes]]:
        """Return the other half of the late ones."""
        hours = range(2 * self._size.hours)
        return [
            self._frame(number, hour, range(1, 60, 2)) for hour in hours for number in self._late
        ]

    @property
    def _late(self) -> range:
        return range(0, self._size.devices, self._size.devices // self._size.late)

    def _frame(self, number: int, hour: int, minutes: Iterable[int]) -> tuple[str, bytes]:
        device = name(number)
        self._seqs[device] = self._seqs.get(device, 0) + 1
        start_ns = FIRST_NS + self._size.day_of(hour) * HOUR_NS
        points = [
            Point("battery", series, start_ns + minute * MINUTE_NS, self._dice.gauss(40, 10))
            for minute in minutes
            for series in SERIES
        ]
        return device, encode_frame(points, epoch=1, seq=self._seqs[device])

    def ingest(self, messages: list[tuple[str, bytes]]) -> None:
        """Make messages part of the points table."""
        first = self._stream_seq + 1
        self._stream_seq += len(messages)
        stored = Stored(
            seqs=list(range(first, self._stream_seq + 1)),
            subjects=[f"up.{device}.f.battery" for device, _ in messages],
            times=[STORED] * len(messages),
            bodies=[body for _, body in messages],
        )
        batch, number = message_batch("UP_00", stored), self._ingest.tables.next_ingest
        [row] = write_parts([batch], self._ingest.points_uri, number, 0)
        self._batch += 1
        done = self._ingest.commit(
            "bench", self._batch, [TaskReport.from_row(**row.to_pylist()[0])]
        )
        self.points += done.points

    def rollup(self) -> tuple[float, Restated]:
        """Roll up; return the seconds it took, and what it did."""
        start = time.perf_counter()
        done = Rollup(self.root, SYSTEM_CLOCK, run_here).run()
        return time.perf_counter() - start, done

    def rollups(self) -> pa.Table:
        """Return the table, sorted."""
        return _sorted(DeltaTable(f"{self.root}/rollups").to_pyarrow_table())


def name(number: int) -> str:
    """Return the name of a device."""
    return f"VID-{number:06}"


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(key, "ascending") for key in KEYS]).combine_chunks()


def same_from_scratch(anew: Path, root: Path) -> float:
    """Sum all points of a table root up anew in an empty directory and compare; return the seconds.

    Raises:
        TrialError: a window is not there, or another one, or differs in a bit.
    """
    anew.mkdir()
    (anew / "points").symlink_to(root / "points")
    start = time.perf_counter()
    Rollup(str(anew), SYSTEM_CLOCK, run_here).run()
    seconds = time.perf_counter() - start
    rows, other = (
        _sorted(DeltaTable(str(of / "rollups")).to_pyarrow_table()) for of in (root, anew)
    )
    if not rows.select(KEYS).equals(other.select(KEYS)):
        raise TrialError(f"{rows.num_rows} windows, {other.num_rows} from scratch")
    for column in SAID:
        if _bits(rows, column) != _bits(other, column):
            raise TrialError(f"{column} differs from what a rollup from scratch says")
    return seconds


def _bits(rows: pa.Table, column: str) -> bytes:
    found: bytes = np.ascontiguousarray(rows.column(column).to_numpy()).tobytes()
    return found


def _only_the_late_changed(size: Size, before: pa.Table, after: pa.Table) -> None:
    late = pa.array([name(number) for number in range(0, size.devices, size.devices // size.late)])
    columns = [*KEYS, "version", "restated_at"]
    others = pc.invert(pc.is_in(before.column("device"), value_set=late))
    then = before.filter(others).select(columns)
    now = after.join(then.select(KEYS), list(KEYS), join_type="left semi").select(columns)
    if not _sorted(now).equals(then):
        raise TrialError("a window of a device that was not late has changed")


def _known_as_before(root: str, then: datetime, before: pa.Table) -> float:
    """Ask for the rollups as they were before the backlog and compare; return the seconds."""
    start = time.perf_counter()
    known = rollups_known_at(root, then)
    seconds = time.perf_counter() - start
    if not known.combine_chunks().equals(before.select(known.column_names)):
        raise TrialError("the rollups as known before the backlog are not what they were")
    return seconds


def _distinct_restated(before: pa.Table, after: pa.Table) -> int:
    """Count the windows of before whose version is another one now."""
    joined = after.select([*KEYS, "version"]).join(
        before.select([*KEYS, "version"]).rename_columns([*KEYS, "old"]),
        list(KEYS),
        join_type="inner",
    )
    return int(pc.sum(pc.not_equal(joined.column("version"), joined.column("old"))).as_py() or 0)
