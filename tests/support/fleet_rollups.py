"""A day of a fleet as rollups, with planted faults: numpy, no messages.

Vehicles live in cycles of six hours (drive, park, charge), each in its own phase, so their hours are
nothing alike though their days are. Faults are planted by device number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import write_deltalake

from backhaul_spark.fleet.readings import Cells, Signal
from backhaul_spark.tables.schemas import ROLLUPS_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DAY = date(2026, 1, 20)
MODELS, FIRMWARES = ("VAN-1", "VAN-2", "TRUCK-1"), ("4.0", "4.1")
SOC, BATTERY, CABIN = Signal("battery", "soc"), Signal("battery", "temp"), Signal("cabin", "temp")
CPU, MOTOR = Signal("cpu", "load"), Signal("motor", "current")
SIGNALS = (SOC, BATTERY, CABIN, CPU, MOTOR)
MINUTES, CYCLE = 1440, 360
STEP = 5
"""Minutes from one reading to the next."""


@dataclass
class SimulatedFleet:
    """Vehicles whose readings follow from seed, vehicle and day.

    Args:
        tails: degrees of freedom of the noise's t distribution; None is normal noise.
        stuck, drifting: device numbers whose cabin.temp fails at minute 400 of DAY.
        draining: device numbers with firmware 4.2, which falls three times as fast.
        silent: device numbers without readings on DAY.
        first: the number in the first device's name.
        keys: each signal is there with each of these keys.
        placed: whether vehicles say where they are: number n at 49 + n/1000 degrees north, an hour a thousandth of a degree farther east.
    """

    devices: int
    seed: int = 1
    tails: float | None = None
    stuck: Sequence[int] = ()
    drifting: Sequence[int] = ()
    draining: Sequence[int] = ()
    silent: Sequence[int] = ()
    first: int = 0
    keys: Sequence[str] = ("",)
    addressed: bool = False
    names: list[str] = field(init=False)
    models: list[str] = field(init=False)
    firmwares: list[str] = field(init=False)

    def __post_init__(self) -> None:
        dice = np.random.default_rng(self.seed)
        n = self.devices
        self.names = [f"SIM-{self.first + i:06d}" for i in range(n)]
        self.models = [MODELS[i] for i in dice.integers(0, len(MODELS), n)]
        self.firmwares = [FIRMWARES[i] for i in dice.integers(0, len(FIRMWARES), n)]
        for i in self.draining:
            self.firmwares[i] = "4.2"
        self._phase = dice.integers(0, CYCLE, n)
        self._full = dice.uniform(92, 98, n)
        self._warmth = self._noise(dice, (n,))
        self._drain = dice.uniform(0.9, 1.1, n)
        self._drain[list(self.draining)] *= 3

    def _noise(self, dice: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        if self.tails is None:
            return dice.standard_normal(shape)
        return dice.standard_t(self.tails, shape)

    def readings(self, signal: Signal, day: date) -> Floats:
        """Return the readings of each device, one every STEP minutes: shape (devices, readings)."""
        ahead = (day - DAY).days * MINUTES
        dice = np.random.default_rng([self.seed, ahead + 10**9, SIGNALS.index(signal)])
        noise = self._noise(dice, (self.devices, MINUTES // STEP))
        minute = np.arange(0, MINUTES, STEP)
        at = (minute + ahead + self._phase[:, None]) % CYCLE
        driving = at < 120
        by_day = np.sin(minute / MINUTES * 2 * np.pi)
        if signal == SOC:
            fallen = (np.minimum(at, 120) * 12 + np.clip(at - 120, 0, 180) * 0.6) / 60
            charged = np.clip(at - 300, 0, 60) / 60
            left = self._full[:, None] - fallen * self._drain[:, None] * (1 - charged)
            return np.asarray(left)
        if signal == BATTERY:
            rise = 1 - np.exp(-np.minimum(at, 120) / 20)
            rise = rise * np.where(driving, 1, np.exp((120 - at) / 30))
            values = 20 + 3 * by_day + 12 * rise + self._warmth[:, None] + 0.2 * noise
            return np.asarray(np.round(values, 1))
        if signal == CABIN:
            values = 21 + 2 * by_day + 0.5 * self._warmth[:, None] + 0.2 * noise
            if day == DAY:
                failed = slice(400 // STEP, None)
                values[list(self.stuck), failed] = values[list(self.stuck), 400 // STEP, None]
                values[list(self.drifting), failed] += (minute[failed] - 400) / 120
            return np.asarray(np.round(values, 1))
        if signal == CPU:
            return np.where(driving, 0.6, 0.12) + 0.02 * noise
        return np.where(driving, 80 + 10 * noise, 0.4 + 0.1 * noise)

    def cells(self, signal: Signal, day: date, width: str = "1h") -> Cells:
        """Return a day of a signal as the survey sees it."""
        columns = self.windows(signal, day, width)
        span_h = (1 if width == "1h" else 24) - STEP / 60
        fall = (columns["first"] - columns["last"]) / span_h
        spread = columns["max"] - columns["min"]
        return Cells(columns["mean"], spread, fall, columns["count"].astype(np.int32))

    def windows(self, signal: Signal, day: date, width: str) -> dict[str, Floats]:
        """Return the rollups of a signal by column, each of shape (devices, windows)."""
        values = self.readings(signal, day).reshape(self.devices, 24 if width == "1h" else 1, -1)
        count = np.full(values.shape[:2], float(values.shape[2]))
        if day == DAY:
            count[list(self.silent)] = 0
        found = {
            "min": values.min(axis=2),
            "max": values.max(axis=2),
            "mean": values.mean(axis=2),
            "first": values[:, :, 0],
            "last": values[:, :, -1],
        }
        for column in found.values():
            column[count == 0] = np.nan
        return found | {"count": count}

    def write(self, root: str, day: date, *, ingest: int = 1) -> None:
        """Append the day's rollups, hours and day, to the table."""
        parts = [
            each
            for signal in SIGNALS
            for width in ("1h", "1d")
            for each in self._rows(signal, day, width)
        ]
        if self.addressed:
            parts += [self._places(type_, day) for type_ in ("lat", "lon")]
        for type_, texts in (("model", self.models), ("firmware", self.firmwares)):
            parts += [self._texts(type_, texts, day, width) for width in ("1h", "1d")]
        rows = pa.concat_tables(parts)
        rows = rows.set_column(
            rows.schema.get_field_index("ingest"),
            "ingest",
            pa.repeat(pa.scalar(ingest, pa.int64()), rows.num_rows),
        )
        order = [(name, "ascending") for name in ("width", "device", "node", "type")]
        write_deltalake(
            f"{root}/rollups",
            rows.sort_by([*order, ("window_start", "ascending")]),
            mode="append",
            partition_by=list(ROLLUPS_TABLE.partition_by),
        )

    def _rows(self, signal: Signal, day: date, width: str) -> Iterator[pa.Table]:
        columns = self.windows(signal, day, width)
        there = (columns["count"] > 0).ravel()
        number = columns["count"].shape[1]
        device = np.repeat(self.names, number)[there]
        window = np.tile(np.arange(number), self.devices)[there]
        values: dict[str, object] = {
            name: column.ravel()[there] for name, column in columns.items() if name != "count"
        }
        values["count"] = columns["count"].ravel()[there].astype(np.int64)
        for key in self.keys:
            yield _table(device, signal._replace(key=key), day, width, window, values)

    def _places(self, type_: str, day: date) -> pa.Table:
        there = np.ones((self.devices, 24), dtype=bool)
        there[list(self.silent) if day == DAY else []] = False
        number, hour = np.nonzero(there)
        at = 49 + number / 1000 if type_ == "lat" else 8.4 + hour / 1000
        values: dict[str, object] = dict.fromkeys(("min", "max", "mean", "first", "last"), at)
        values["count"] = np.full(len(at), 60)
        return _table(np.array(self.names)[number], Signal("gps", type_), day, "1h", hour, values)

    def _texts(self, type_: str, texts: Sequence[str], day: date, width: str) -> pa.Table:
        there = np.ones(self.devices, dtype=bool)
        there[list(self.silent) if day == DAY else []] = False
        said = np.array(texts, dtype=object)[there]
        values: dict[str, object] = {"texts": np.ones(len(said), dtype=np.int64), "last_text": said}
        signal, window = Signal("vehicle", type_), np.zeros(len(said), dtype=np.int64)
        return _table(np.array(self.names)[there], signal, day, width, window, values)


def _table(
    device: NDArray[np.str_],
    signal: Signal,
    day: date,
    width: str,
    window: NDArray[np.int64],
    values: dict[str, object],
) -> pa.Table:
    start_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    step_us = 3_600_000_000 * (1 if width == "1h" else 24)
    begin_us = start_us + window * step_us
    size = len(device)
    given = values | {
        "device": device.astype(object),
        "window_start": begin_us,
        "first_time_ns": begin_us * 1000,
        "last_time_ns": (begin_us + step_us - STEP * 60_000_000) * 1000,
        "restated_at": np.full(size, start_us),
    }
    fixed = {"node": signal.node, "type": signal.type, "key": signal.key, "width": width}
    numbers = {"count": 0, "nans": 0, "texts": 0, "version": 1, "ingest": 1}
    columns = []
    for each in ROLLUPS_TABLE.schema:
        if each.name in given:
            array = pa.array(given[each.name])
        elif each.name in fixed:
            array = pa.repeat(pa.scalar(fixed[each.name]), size)
        elif each.name in numbers:
            array = pa.repeat(pa.scalar(numbers[each.name]), size)
        elif each.name == "date":
            array = pa.repeat(pa.scalar(day), size)
        else:
            array = pa.nulls(size)
        columns.append(array.cast(each.type))
    return pa.Table.from_arrays(columns, schema=ROLLUPS_TABLE.schema)


def days_before(number: int) -> list[date]:
    """Return the days before DAY, oldest first."""
    return [DAY - timedelta(days=i) for i in range(number, 0, -1)]
