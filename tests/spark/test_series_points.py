"""One series is read out of files as Arrow's scanner reads it, and of each row group the columns that it takes."""

from __future__ import annotations

import random
from datetime import date
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from backhaul_codec import Point, encode_frame, encode_point
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.series_points import PLACES, VALUES, Asked, SeriesPoints
from backhaul_spark.tables import by_series, part_file
from backhaul_spark.tables.compaction import compact
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import POINTS_TABLE
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from backhaul_codec import Value

pytestmark = pytest.mark.slow

DAY_NS, SECOND_NS = 86_400 * 10**9, 10**9
DEVICES, TYPES = ("VID-001", "VID-0010", "VID-002"), ("soc", "temp")
LAST_DAY = date(9999, 12, 31)


def mixed(root: str, seed: int) -> None:
    """Three ingests of numbers, texts, deletions and times without belief, of three devices; two are compacted."""
    dice, ingest, seq = random.Random(seed), Ingest(root, SYSTEM_CLOCK), 0
    for batch in range(3):
        parts = []
        for device in DEVICES:
            bodies = []
            for _ in range(4):
                seq += 1
                kinds: list[Value] = [dice.random(), dice.randrange(9), "idle"]
                values = [dice.choice(kinds) for _ in range(9)]
                start = dice.choice([0, T0_NS + dice.randrange(3 * DAY_NS)])
                rows = [
                    Point("battery", dice.choice(TYPES), start + i * SECOND_NS, value)
                    for i, value in enumerate(values)
                ]
                bodies.append(encode_frame(rows, epoch=1, seq=seq))
            parts.append(message_batch("UP_00", stored(bodies, device=device, first_seq=seq - 3)))
            seq += 1
            gone = Point("battery", "soc", T0_NS + batch * DAY_NS, 1.0, tombstone=1)
            alone = [encode_point(gone, epoch=1, seq=seq)]
            parts.append(
                message_batch(
                    "UP_00", stored(alone, device=device, leaf="p.battery.soc.%", first_seq=seq)
                )
            )
        ingest.commit("app", batch, [task(root, ingest.tables.next_ingest, *parts)])
        if batch == 1:
            with (
                mock.patch.object(part_file, "ROW_GROUP_ROWS", 16),
                mock.patch.object(by_series, "BLOCK_ROWS", 7),
            ):
                compact(root, POINTS_TABLE, SYSTEM_CLOCK)


def scanned(root: str, asked: Asked) -> pa.Table:
    """The same by Arrow's scanner."""
    wanted = (pc.field("date") >= asked.days[0]) & (pc.field("date") <= asked.days[1])
    for name, value in zip(("device", "node", "type", "key"), asked.names, strict=True):
        wanted &= pc.field(name) == value
    wanted &= pc.field("dtype").isin([1, 2, 3, 4])
    if not asked.deleted:
        wanted &= pc.bit_wise_and(pc.field("tombstone"), 1) == 0
    columns = [*VALUES, *PLACES, "time", "ingested_at"]
    rows = dataset_of(open_table(root, POINTS_TABLE)).to_table(columns=columns, filter=wanted)
    time_us, known_us = (rows.column(n).cast("int64").to_numpy() for n in ("time", "ingested_at"))
    kept = pc.is_valid(rows.column("time_ns")).to_numpy()
    if asked.from_us is not None:
        kept &= time_us >= asked.from_us
    if asked.to_us is not None:
        kept &= time_us < asked.to_us
    if asked.known_us is not None:
        kept &= known_us <= asked.known_us
    return rows.filter(kept).select([*VALUES, *PLACES])


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by([(n, "ascending") for n in PLACES]).to_pylist()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_series_is_read_as_the_scanner_reads_it(tmp_path: Path, seed: int) -> None:
    root = str(tmp_path)
    mixed(root, seed)
    table = open_table(root, POINTS_TABLE)
    stamps = sorted(set(dataset_of(table).to_table(["ingested_at"]).column(0).to_pylist()))
    known_us = round(stamps[len(stamps) // 2].timestamp() * 1e6)
    series, start_us = SeriesPoints(root, table), T0_NS // 1000
    some = 0
    for device in (*DEVICES, "VID-003"):
        for type_ in TYPES:
            names, days = (device, "battery", type_, ""), (date(1970, 1, 2), LAST_DAY)
            for asked in (
                Asked(names, days),
                Asked(names, days, deleted=True),
                Asked(names, (date(1970, 1, 1), date(1970, 1, 1))),
                Asked(names, days, start_us, start_us + DAY_NS // 1000),
                Asked(names, days, known_us=known_us),
            ):
                expected = scanned(root, asked)
                assert in_order(series.rows(asked, (*VALUES, *PLACES))) == in_order(expected)
                assert series.count(asked) == expected.num_rows
                bounds = pc.min_max(expected.column("time_ns")).as_py()
                found = series.extent_us(asked)
                lowest = None if found is None else found[0]
                assert lowest == (None if bounds["min"] is None else bounds["min"] // 1000)
                assert (found and found[1]) == (bounds["max"] and bounds["max"] // 1000)
                some += expected.num_rows
    assert some > 100


def test_of_rows_in_order_nothing_is_read_but_times_values_and_the_names_that_differ(
    tmp_path: Path,
) -> None:
    root, ingest = str(tmp_path), Ingest(str(tmp_path), SYSTEM_CLOCK)
    for batch in range(2):
        bodies = [
            frame(batch * 2 + n + 1, [float(n + i) for i in range(50)], type_=name)
            for n, name in enumerate(TYPES)
        ]
        part = task(root, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
        ingest.commit("app", batch, [part])
    compact(root, POINTS_TABLE, SYSTEM_CLOCK)
    series = SeriesPoints(root, open_table(root, POINTS_TABLE))
    asked = Asked(("VID-001", "battery", "temp", ""), (date(1970, 1, 2), LAST_DAY))
    read: list[str] = []
    whole = pq.ParquetFile.read_row_group

    def noted(file: pq.ParquetFile, at: int, columns: list[str]) -> pa.Table:
        read.extend(columns)
        return whole(file, at, columns)

    with mock.patch.object(pq.ParquetFile, "read_row_group", noted):
        assert series.rows(asked).num_rows == 100
    assert sorted(read) == ["time_ns", "type", "value_f64"]
