"""Windows are the same, bit for bit, whatever fits into memory at a time."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from backhaul_spark.rollup import long_windows, sorted_rows
from backhaul_spark.rollup.long_windows import added
from backhaul_spark.rollup.rows import SERIES, scratch_file
from backhaul_spark.rollup.tasks import FindTouched, SumHours
from backhaul_spark.rollup.windows import WINDOWS, Counted
from backhaul_spark.tables.schemas import POINTS_TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from backhaul_spark.rollup.sorted_rows import Rows

pytestmark = pytest.mark.slow

HOUR = 490_000
HOUR_NS, MINUTE_NS = 3_600_000_000_000, 60_000_000_000
NUMBERS = [0.0, -0.0, 0.1, -7.3, 1e300, -1e300, np.nan, np.inf, 1 / 3, 2.5e-310]


def points(seed: int, rows: int, series: int, stamps: int, live: float) -> pa.Table:
    """Random readings: times that are often the same, values that are often the same."""
    dice = np.random.default_rng(seed)
    dtype = dice.choice([1, 1, 1, 2, 3, 4], rows)
    text = dice.choice(["on", "off", "", "\N{SNOWMAN}" * 9], rows)
    many = dice.random() < 0.5
    value = dice.normal(40, 10, rows) if many else dice.choice(NUMBERS, rows)
    whole = (
        dice.integers(-4, 4, rows)
        if dice.random() < 0.5
        else dice.integers(-(1 << 62), 1 << 62, rows)
    )
    at = dice.integers(0, stamps, rows) * (3 * HOUR_NS // stamps)
    numbers = np.arange(rows)
    dice.shuffle(numbers)
    columns = {
        "device": dice.choice(["VID-1", "VID-2"], rows),
        "node": dice.choice(["battery", "b"], rows),
        "type": [f"t{number}" for number in dice.integers(0, series, rows)],
        "key": dice.choice(["", "k"], rows),
        "time_ns": HOUR * HOUR_NS + at,
        "seq": numbers // 50,
        "index": numbers % 50,
        "epoch": dice.integers(1, 3, rows),
        "lane": dice.choice(["live", "bulk", "events"], rows),
        "letter": np.where(dice.random(rows) < live, "p", "f"),
        "dtype": dtype,
        "value_f64": pa.array(value, mask=dtype != 1),
        "value_i64": pa.array(whole, mask=~np.isin(dtype, (2, 3))),
        "value_text": pa.array(text, mask=dtype != 4),
        "tombstone": np.zeros(rows),
        "ingest": dice.integers(1, 4, rows),
    }
    schema = pa.schema([POINTS_TABLE.schema.field(name) for name in columns])
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    return table.cast(schema)


def summed(root: Path, paths: tuple[str, ...]) -> pa.Table:
    touched = FindTouched(str(root), paths, 0, 3).run()
    found = SumHours(str(root), paths, HOUR, HOUR + 3, 3, touched).run()
    keys = ["width", *SERIES, "window_start"]
    return found.sort_by([(name, "ascending") for name in keys]).combine_chunks()


def bits(table: pa.Table) -> list[list[object]]:
    """What stands there; doubles by their bits, but for the sign of a least or greatest zero."""
    columns = []
    for name, column in zip(table.column_names, table.combine_chunks().columns, strict=True):
        if name in ("min", "max"):
            column = pc.add(column, 0.0)
        if pa.types.is_floating(column.type):
            column = pa.array(column.to_numpy().view(np.int64), mask=~column.is_valid().to_numpy())
        columns.append(column.to_pylist())
    return columns


def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_rows, "HOLD_ROWS", 150)
    monkeypatch.setattr(sorted_rows, "MERGE_ROWS", 8)
    monkeypatch.setattr(sorted_rows, "MERGE_ROWS_MIN", 8)
    monkeypatch.setattr(sorted_rows, "PIECE_ROWS", 32)
    monkeypatch.setattr(long_windows, "PIECE_ROWS", 32)
    monkeypatch.setattr(long_windows, "GROUP_ROWS", 20)
    monkeypatch.setattr(long_windows, "ADDED", 128)
    monkeypatch.setattr(long_windows, "TOLD_APART", 5)


@pytest.mark.parametrize(
    ("seed", "shape"),
    list(enumerate(product((1, 400, 3000), (1, 5), (1, 3, 40, 4000), (0.0, 0.02, 0.6)))),
)
def test_windows_are_the_same_whatever_fits_into_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    shape: tuple[int, int, int, float],
) -> None:
    rows = points(seed, *shape)
    cut = len(rows) // 3
    pq.write_table(rows[:cut], tmp_path / "a.parquet")
    pq.write_table(rows[cut:], tmp_path / "b.parquet")
    paths = ("a.parquet", "b.parquet")
    whole = summed(tmp_path, paths)
    assert whole.num_rows or not rows.num_rows
    few_at_a_time(monkeypatch)
    spilled = summed(tmp_path, tuple(reversed(paths)))
    assert spilled.schema == WINDOWS
    assert bits(spilled) == bits(whole)


@pytest.mark.parametrize("stamps", [1, 1000])
def test_of_one_hour_few_rows_are_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamps: int
) -> None:
    few_at_a_time(monkeypatch)
    summed_up: list[int] = []

    class Noted(Counted):
        def __init__(self, rows: Rows, repeat: NDArray[np.bool_]) -> None:
            summed_up.append(len(rows))
            super().__init__(rows, repeat)

    monkeypatch.setattr(long_windows, "Counted", Noted)
    rows = points(1, 4500, 1, stamps, 0.3)
    rows = rows.filter(pc.less(rows.column("time_ns"), (HOUR + 1) * HOUR_NS))
    for name in ("device", "node", "key"):
        same = pa.repeat(pa.scalar("x"), len(rows))
        rows = rows.set_column(rows.schema.get_field_index(name), name, same)
    pq.write_table(rows, tmp_path / "a.parquet")
    hours = [row for row in summed(tmp_path, ("a.parquet",)).to_pylist() if row["width"] == "1h"]
    assert len(hours) == 1
    assert sum(summed_up) == len(rows) >= 1300
    assert max(summed_up) < 600


@pytest.mark.parametrize("count", [1, 2, 8, 9, 128, 129, 130, 1000, 4097, 100_003])
def test_numbers_of_a_file_are_added_as_numpy_adds_them(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(long_windows, "ADDED", 128)
    numbers = np.random.default_rng(count).normal(1, 1e6, count)
    with scratch_file() as file:
        file.write(b"12345678" + numbers.tobytes())
        assert added(file, 8, count) == np.add.reduceat(numbers, [0])[0]


def test_a_sum_of_negative_zeros_is_one() -> None:
    with scratch_file() as file:
        file.write(np.full(1000, -0.0).tobytes())
        assert np.signbit(added(file, 0, 1000))
