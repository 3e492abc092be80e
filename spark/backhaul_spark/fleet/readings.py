"""The fleet's signals, window by window, as dense arrays from the rollups. No Spark.

A day of 100,000 devices with 10 signals is 24 million rows. They are read in batches and put into
arrays of 28 bytes a cell, as many signals at a time as CELLS_MAX allows: memory hangs on that limit
and on the number of devices, not on how long or how busy the day was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Floats, Ints

CELLS_MAX = 1 << 24
"""Cells (device, signal, window) in memory at a time: 470 MB."""
SIGNALS_MAX = 200
"""Signals that are judged: those with the most windows. The others are only counted."""
BATCH_ROWS = 1 << 17
FALL_SPAN_S_MIN = 600
"""First and last value of a window must lie so far apart to say how fast it falls."""
DAY_US, HOUR_US = 86_400_000_000, 3_600_000_000


class Signal(NamedTuple):
    """One kind of series that many devices have."""

    node: str
    type: str
    key: str = ""

    def __str__(self) -> str:
        return ".".join(filter(None, self))


@dataclass(frozen=True, slots=True)
class Cells:
    """One signal of all devices: a row a device, a column a window. Without numbers: NaN, count 0.

    Attributes:
        level: the mean.
        spread: greatest minus smallest value.
        fall: how fast it fell from first to last value, an hour; negative where it rose.
        count: numbers.
    """

    level: Floats
    spread: Floats
    fall: Floats
    count: NDArray[np.int32]

    @classmethod
    def empty(cls, devices: int, windows: int) -> Cells:
        """Return cells without numbers."""
        shape = (devices, windows)
        nan = np.nan
        return cls(
            np.full(shape, nan),
            np.full(shape, nan),
            np.full(shape, nan),
            np.zeros(shape, dtype=np.int32),
        )


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one width from the day `first` on, `days` of them; `hour`: only that one."""

    width: str
    first: date
    days: int = 1
    hour: int | None = None

    @property
    def start_us(self) -> int:
        """The first moment, us since 1970."""
        day = datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC)
        return int(day.timestamp()) * 1_000_000 + (self.hour or 0) * HOUR_US

    @property
    def step_us(self) -> int:
        """The length of a window."""
        return DAY_US if self.width == "1d" else HOUR_US

    @property
    def end_us(self) -> int:
        """The first moment after them."""
        span = HOUR_US if self.hour is not None else self.days * DAY_US
        return self.start_us + span

    @property
    def number(self) -> int:
        """How many windows there are."""
        return (self.end_us - self.start_us) // self.step_us

    def where(self) -> Any:
        """Return the filter over rollups."""
        low, high = (pa.scalar(us).cast(_STAMP) for us in (self.start_us, self.end_us))
        days = [self.start_us // DAY_US + i for i in range(max(self.days, 1))]
        dates = pa.array(days, pa.int32()).cast(pa.date32())
        window = pc.field("window_start")
        within = (window >= low) & (window < high)
        return (pc.field("width") == self.width) & pc.field("date").isin(dates) & within


_STAMP = pa.timestamp("us", tz="UTC")
_KEYS = ("device", "node", "type", "key")
_VALUES = ("window_start", "count", "min", "max", "mean", "first", "last")
_COLUMNS = (*_KEYS, *_VALUES, "first_time_ns", "last_time_ns", "texts", "nans")


@dataclass(slots=True)
class Census:
    """The devices and signals of windows, and the readings that each device sent in them.

    Attributes:
        seen: a row a device, a column a window: whether there are readings.
        points: readings of any kind, of each device.
        left_out: how many signals more there are than SIGNALS_MAX.
    """

    devices: list[str]
    signals: list[Signal]
    seen: Flags
    points: Ints
    left_out: int = 0


class Readings:
    """The rollups, opened for questions about the whole fleet."""

    def __init__(self, dataset: Any, cells_max: int = CELLS_MAX) -> None:
        self._dataset = dataset
        self._cells_max = cells_max

    def devices(self, windows: Windows) -> set[str]:
        """Return the devices that have rows in these windows."""
        found: set[str] = set()
        for batch in self._batches(windows, ["device"]):
            found.update(pc.unique(batch.column("device")).to_pylist())
        return found

    def census(self, windows: Windows, known: Sequence[str]) -> Census:
        """Count the readings; `known` devices are among the devices though they sent nothing."""
        devices = sorted(self.devices(windows) | set(known))
        index = pa.array(devices, pa.string())
        seen = np.zeros((len(devices), windows.number), dtype=bool)
        points = np.zeros(len(devices), dtype=np.int64)
        rows: dict[Signal, int] = {}
        columns = [*_KEYS, "window_start", "count", "texts", "nans"]
        for batch in self._batches(windows, columns):
            device = pc.index_in(batch.column("device"), value_set=index).to_numpy()
            seen[device, _window(batch, windows)] = True
            sent = sum(batch.column(name).to_numpy() for name in ("count", "texts", "nans"))
            points += np.bincount(device, sent, len(devices)).astype(np.int64)
            numbers = pa.table(batch.filter(pc.greater(batch.column("count"), 0)).columns, columns)
            names = ["node", "type", "key"]
            for row in numbers.group_by(names).aggregate([("count", "count")]).to_pylist():
                signal = Signal(*(row[name] for name in names))
                rows[signal] = rows.get(signal, 0) + row["count_count"]
        ranked = sorted(rows, key=lambda signal: (-rows[signal], signal))
        kept = sorted(ranked[:SIGNALS_MAX])
        return Census(devices, kept, seen, points, len(ranked) - len(kept))

    def cells(
        self, windows: Windows, devices: Sequence[str], signals: Sequence[Signal]
    ) -> Iterator[tuple[Signal, Cells]]:
        """Yield the cells of each signal; no more than `cells_max` are held at a time."""
        size = max(len(devices) * windows.number, 1)
        at_once = max(self._cells_max // size, 1)
        index = pa.array(devices, pa.string())
        for start in range(0, len(signals), at_once):
            chosen = signals[start : start + at_once]
            yield from self._load(windows, index, chosen).items()

    def _load(
        self, windows: Windows, index: pa.Array, signals: Sequence[Signal]
    ) -> dict[Signal, Cells]:
        found = {signal: Cells.empty(len(index), windows.number) for signal in signals}
        names = [pa.array(sorted({signal[i] for signal in signals})) for i in range(3)]
        number = np.full([len(each) for each in names], -1)
        for i, signal in enumerate(signals):
            number[tuple(names[at].index(signal[at]).as_py() for at in range(3))] = i
        extra = pc.field("count") > 0
        for field, each in zip(("node", "type", "key"), names, strict=True):
            extra = extra & pc.field(field).isin(each)
        for batch in self._batches(windows, list(_COLUMNS), extra):
            place = tuple(
                pc.index_in(batch.column(field), value_set=each).to_numpy()
                for field, each in zip(("node", "type", "key"), names, strict=True)
            )
            device = pc.index_in(batch.column("device"), value_set=index)
            # A device that appeared since the census is left for the next time.
            rows = np.where(device.is_valid(), number[place], -1)
            device = pc.fill_null(device, 0).to_numpy()
            values = _values(batch)
            window = _window(batch, windows)
            for i, signal in enumerate(signals):
                mine = rows == i
                if not mine.any():
                    continue
                cells, at = found[signal], (device[mine], window[mine])
                for target, source in zip(
                    (cells.level, cells.spread, cells.fall, cells.count), values, strict=True
                ):
                    target[at] = source[mine]  # type: ignore[index]
        return found

    def last_texts(self, spans: Sequence[Windows], signal: Signal) -> dict[str, str]:
        """Return the newest text of a series of each device that has one in these windows."""
        extra = (
            (pc.field("node") == signal.node)
            & (pc.field("type") == signal.type)
            & (pc.field("key") == signal.key)
            & (pc.field("texts") > 0)
        )
        newest: dict[str, tuple[int, str]] = {}
        for span in spans:
            for batch in self._batches(span, ["device", "last_text", "last_time_ns"], extra):
                columns = (column.to_pylist() for column in batch.columns)
                for device, text, time_ns in zip(*columns, strict=True):
                    newest[device] = max(newest.get(device, (-1, "")), (time_ns, text))
        return {device: text for device, (_, text) in newest.items()}

    def _batches(
        self, windows: Windows, columns: list[str], extra: Any = None
    ) -> Iterator[pa.RecordBatch]:
        where = windows.where() if extra is None else windows.where() & extra
        yield from self._dataset.to_batches(
            columns=columns, filter=where, batch_size=BATCH_ROWS, batch_readahead=4
        )


def _window(batch: pa.RecordBatch, windows: Windows) -> Ints:
    start = batch.column("window_start").cast(pa.int64()).to_numpy()
    column: Ints = (start - windows.start_us) // windows.step_us
    return column


def _values(batch: pa.RecordBatch) -> tuple[Floats, Floats, Floats, Ints]:
    low, high, mean, first, last = (
        batch.column(name).to_numpy(zero_copy_only=False)
        for name in ("min", "max", "mean", "first", "last")
    )
    begin, end = (
        batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        for name in ("first_time_ns", "last_time_ns")
    )
    span_s = (end - begin) / 1e9
    long_enough = span_s >= FALL_SPAN_S_MIN
    with np.errstate(all="ignore"):  # infinities are numbers too, and are no level
        spread = high - low
        fall = np.where(
            long_enough, (first - last) / np.where(long_enough, span_s, 1) * 3600, np.nan
        )
    # The mean of equal numbers is theirs but for rounding, which hangs on how many they are.
    mean = np.where(spread == 0, low, mean)
    finite = np.isfinite(mean) & np.isfinite(spread)
    count = np.where(finite, batch.column("count").to_numpy(), 0)
    return (
        np.where(finite, mean, np.nan),
        np.where(finite, spread, np.nan),
        np.where(np.isfinite(fall), fall, np.nan),
        count,
    )
