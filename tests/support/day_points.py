"""A day of a vehicle to publish, ten passes a second over 20 signals, and the account of what arrived.

A reading is known by its series and stamp, and its value follows from both, in whole numbers and no
floating point: so what is read back can be held against what must be there without keeping the day.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec import Point, encode_frame, peek
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.wire.retime import retime
from tests.support.errors import LostDataError
from tests.support.numbered_points import FIRST_NS, PASS_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE = "car"
PASSES_A_SECOND = 1_000_000_000 // PASS_NS
_HOUR_S = 3600
DAY_S = 24 * _HOUR_S


class Signal(NamedTuple):
    """One series: steps of 1/scale up and down between 0 and `span`, one each `rest` passes, and noise."""

    type: str
    scale: int
    rest: int
    span: int
    noise: int


SIGNALS = (
    Signal("soc", 100, 90, 9_000, 0),
    Signal("speed", 10, 1, 1_300, 4),
    Signal("voltage", 10, 7, 1_200, 6),
    Signal("current", 10, 1, 2_500, 40),
    Signal("power", 10, 2, 1_500, 60),
    Signal("odometer", 1000, 1, 90_000_000, 0),
    Signal("latitude", 100_000, 1, 200_000, 3),
    Signal("longitude", 100_000, 1, 300_000, 3),
    Signal("altitude", 10, 5, 8_000, 5),
    Signal("heading", 10, 3, 3_600, 8),
    Signal("cell_low", 1000, 20, 900, 2),
    Signal("cell_high", 1000, 20, 900, 2),
    Signal("cell_temp", 10, 300, 450, 1),
    Signal("motor_temp", 10, 100, 900, 1),
    Signal("motor_speed", 1, 1, 9_000, 30),
    Signal("torque", 10, 1, 2_000, 50),
    Signal("inverter_temp", 10, 150, 800, 1),
    Signal("cabin_temp", 10, 600, 300, 0),
    Signal("brake", 10, 40, 10, 0),
    Signal("gear", 1, 300, 3, 0),
)
POINTS_A_SECOND = PASSES_A_SECOND * len(SIGNALS)
_HOUR_POINTS = _HOUR_S * POINTS_A_SECOND

_SCALE, _REST, _SPAN, _AMPLITUDE = (
    np.array([getattr(signal, name) for signal in SIGNALS], dtype=np.int64)
    for name in ("scale", "rest", "span", "noise")
)
_NOISE = np.random.default_rng(20).integers(0, 1 << 30, 99_991)

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Values = np.ndarray[tuple[int], np.dtype[np.float64]]


def values(numbers: Numbers) -> Values:
    """Return the values of readings by their numbers: pass times signals, and which signal.

    Every hour of the day reads alike.
    """
    in_hour = numbers % _HOUR_POINTS
    passes, series = np.divmod(in_hour, len(SIGNALS))
    span, amplitude = _SPAN[series], _AMPLITUDE[series]
    there_and_back = np.abs(passes // _REST[series] % (2 * span) - span)
    noise = _NOISE[in_hour % len(_NOISE)] % (2 * amplitude + 1) - amplitude
    found: Values = (there_and_back + noise) / _SCALE[series]
    return found


def frames(first_s: int, seconds: int) -> list[bytes]:
    """Return one frame for each second of the day, as a program hands over what it read in it."""
    found = []
    for second in range(first_s, first_s + seconds):
        hours, rest_s = divmod(second, _HOUR_S)
        found.append(retime(_frame(rest_s), hours * _HOUR_S * 1_000_000_000))
    return found


@cache
def _frame(second: int) -> bytes:
    """Return the frame of a second of the first hour."""
    first = second * POINTS_A_SECOND
    numbers = np.arange(first, first + POINTS_A_SECOND, dtype=np.int64)
    points = [
        Point(
            NODE,
            SIGNALS[number % len(SIGNALS)].type,
            FIRST_NS + number // len(SIGNALS) * PASS_NS,
            value,
        )
        for number, value in zip(numbers.tolist(), values(numbers).tolist(), strict=True)
    ]
    return encode_frame(points, epoch=0, seq=0)


class Tally:
    """Counts what stands in a stream against what a day of so many seconds must be."""

    def __init__(self, seconds: int) -> None:
        self.repeats = 0
        """Frames that stand there again, under the place of one that was there: they do not count."""
        self.foreign = 0
        """Readings of no pass of this day, or with another value."""
        self.doubled = 0
        self._there = np.zeros(seconds * POINTS_A_SECOND, dtype=np.bool_)
        self._places: set[tuple[int, int]] = set()

    @property
    def points(self) -> int:
        """How many different readings are there."""
        return int(self._there.sum())

    def take(self, bodies: Sequence[bytes]) -> None:
        """Take in frames of the bulk lane."""
        fresh = [body for body in bodies if self._is_new(body)]
        if not fresh:
            return
        columns = decode_columns(fresh)
        names = pa.array([signal.type for signal in SIGNALS])
        series = pc.fill_null(pc.index_in(columns.column("type").cast(pa.string()), names), -1)
        passes, rest = np.divmod(columns.column("time").to_numpy() - FIRST_NS, PASS_NS)
        numbers = passes * len(SIGNALS) + series.to_numpy()
        named = (series.to_numpy() >= 0) & (rest == 0)
        named &= (numbers >= 0) & (numbers < len(self._there))
        found = columns.column("f64").to_numpy(zero_copy_only=False)
        own = numbers[named][values(numbers[named]) == found[named]]
        self.foreign += len(numbers) - len(own)
        unique = np.unique(own)
        self.doubled += len(own) - len(unique) + int(self._there[unique].sum())
        self._there[unique] = True

    def require_exact(self, where: str) -> None:
        """Check that every reading of the day is there once, and no other.

        Raises:
            LostDataError: it is not so.
        """
        missing, doubled = len(self._there) - self.points, self.doubled + self.foreign
        if missing or doubled:
            raise LostDataError(where, missing=missing, doubled=doubled)

    def _is_new(self, body: bytes) -> bool:
        header = peek(body)
        place = header.epoch, header.seq
        if place in self._places:
            self.repeats += 1
            return False
        self._places.add(place)
        return True
