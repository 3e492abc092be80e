"""Compare firmwares: with the others of the model on the same day, and with the days before. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from backhaul_spark.arrays import Floats
from backhaul_spark.fleet.cohorts import PEERS_MIN, Cohorts
from backhaul_spark.fleet.readings import Signal
from backhaul_spark.fleet.robust import MAD_TO_SIGMA

SHIFT_MIN = 3.0
"""A firmware stands apart when its middle vehicle lies so many deviations out of the others."""
OUTSIDE_SHARE = 0.05
FEW_MIN = 4
"""A firmware of fewer vehicles than PEERS_MIN, and of so many, stands apart when every one of them does.

Of sound vehicles with noise of heavy tails (t, 2.2 degrees of freedom) one in 25 lies so far out on one
side, so four of four one time in 400,000. Three would be one time in 16,000, which is too often over all
firmwares and signals of a large fleet.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """The devices of one firmware of a model."""

    firmware: str
    median: float
    devices: int


@dataclass(frozen=True, slots=True)
class Apart:
    """A firmware that stands apart from the other firmwares of its model."""

    model: str
    firmware: str
    devices: int
    value: float
    expected: float
    others: int
    firmwares: int
    score: float


def firmwares_apart(values: Floats, cohorts: Cohorts, *, only_above: bool) -> list[Apart]:
    """Return the firmwares whose devices' values stand apart.

    `values` is (devices,) float64, NaN where there is none. Where only two are there nothing says which one is right: the newer is named, or with
    `only_above` (a drain, of which only more is an anomaly) the one above.
    """
    found = []
    for at, model in enumerate(cohorts.model_names):
        found += _few_apart(values, cohorts, at, only_above=only_above)
        groups = _groups(values, cohorts, at)
        if len(groups) < 2:
            continue
        for mine in groups:
            others = [each for each in groups if each is not mine]
            of_others = values[
                np.isin(cohorts.cohort, [_number(cohorts, model, o.firmware) for o in others])
            ]
            of_others = of_others[~np.isnan(of_others)]
            expected = float(np.median(of_others))
            scale = MAD_TO_SIGMA * float(np.median(np.abs(of_others - expected)))
            shift = mine.median - expected
            # A signal with two states (driving, parked) has a median that leaps from one to the
            # other; nearly all others must be on one side, too.
            low, high = np.quantile(of_others, (OUTSIDE_SHARE, 1 - OUTSIDE_SHARE))
            if scale <= 0 or abs(shift) < SHIFT_MIN * scale or low <= mine.median <= high:
                continue
            if shift < 0 if only_above else not _to_blame(mine, others, shift):
                continue
            score = abs(shift) / (SHIFT_MIN * scale) * np.sqrt(mine.devices)
            size = len(of_others), len(others)
            found.append(
                Apart(
                    model, mine.firmware, mine.devices, mine.median, expected, *size, float(score)
                )
            )
    return found


def _few_apart(values: Floats, cohorts: Cohorts, model: int, *, only_above: bool) -> list[Apart]:
    """Return the firmwares of few vehicles of a model that stand apart from all its others.

    The few are named, and not the others, also where these are the newer: of a fleet most are sound.
    """
    name = cohorts.model_names[model]
    numbers = {
        number: firmware
        for number, (of, firmware) in enumerate(cohorts.names)
        if of == name and firmware
    }
    known = np.isin(cohorts.cohort, list(numbers)) & ~np.isnan(values)
    found = []
    for number, firmware in numbers.items():
        own = values[known & (cohorts.cohort == number)]
        rest = known & (cohorts.cohort != number)
        others = values[rest]
        if not FEW_MIN <= len(own) < PEERS_MIN or len(others) < PEERS_MIN:
            continue
        expected = float(np.median(others))
        # Wider by what the median of few does not know, as in Cohorts.reference.
        scale = MAD_TO_SIGMA * float(np.median(np.abs(others - expected))) * (1 + 3 / len(others))
        low, high = np.quantile(others, (OUTSIDE_SHARE, 1 - OUTSIDE_SHARE))
        above = own.min() > max(expected + SHIFT_MIN * scale, high)
        below = own.max() < min(expected - SHIFT_MIN * scale, low)
        if scale <= 0 or not (above or (below and not only_above)):
            continue
        value = float(np.median(own))
        score = abs(value - expected) / (SHIFT_MIN * scale) * np.sqrt(len(own))
        size = len(others), len(np.unique(cohorts.cohort[rest]))
        found.append(Apart(name, firmware, len(own), value, expected, *size, float(score)))
    return found


def _groups(values: Floats, cohorts: Cohorts, model: int) -> list[Group]:
    groups = []
    for number, (name, firmware) in enumerate(cohorts.names):
        if name != cohorts.model_names[model] or not firmware:
            continue
        own = values[cohorts.cohort == number]
        own = own[~np.isnan(own)]
        if len(own) >= PEERS_MIN:
            groups.append(Group(firmware, float(np.median(own)), len(own)))
    return groups


def _number(cohorts: Cohorts, model: str, firmware: str) -> int:
    return cohorts.names.index((model, firmware))


def _to_blame(mine: Group, others: list[Group], shift: float) -> bool:
    if len(others) == 1:
        return version_key(mine.firmware) > version_key(others[0].firmware)
    medians = [each.median for each in others]
    return max(medians) - min(medians) < abs(shift) / 2


def version_key(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions as people do: 4.10 after 4.9."""
    parts = re.findall(r"\d+|\D+", text)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


@dataclass(frozen=True, slots=True)
class PastDay:
    """One row of fleet_days: a cohort's figures in a signal on a day."""

    day: date
    model: str
    firmware: str
    signal: Signal
    devices: int
    median: float
    mad: float
    fall: float | None
    fall_mad: float | None

    @classmethod
    def of(cls, row: dict[str, Any]) -> PastDay:
        """Take it from a row of the table."""
        signal = Signal(row["node"], row["type"], row["key"])
        falls = row["fall_median"], row["fall_mad"]
        cohort = row["date"], row["model"], row["firmware"]
        return cls(*cohort, signal, row["devices"], row["median"], row["mad"], *falls)

    def number(self, *, falls: bool) -> tuple[float, float] | None:
        """Return median and deviation, of the fall or the level."""
        if not falls:
            return self.median, self.mad
        return None if self.fall is None or self.fall_mad is None else (self.fall, self.fall_mad)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A change on a model's vehicles that came with a new firmware."""

    model: str
    firmware: str
    signal: Signal
    before: float
    after: float
    days: int
    devices: int
    score: float


ROLLOUT_DAYS_MIN = 3
DAY_SHIFT_MIN = 6.0
"""And farther than the model's middle vehicle moved from day to day before, by so many deviations."""


def rollout(
    past: Sequence[PastDay], today: PastDay, *, falls: bool, only_above: bool
) -> Rollout | None:
    """Compare a firmware with its model's others on the days before it came.

    Args:
        past: of the same model and signal, any firmware.
        today: of the firmware.
        falls: whether to compare how fast the signal falls, and not where it lies.
        only_above: whether only more than before is an anomaly.
    """
    since = min((each.day for each in past if each.firmware == today.firmware), default=today.day)
    earlier = [
        each.number(falls=falls)
        for each in past
        if each.day < since and each.firmware != today.firmware and each.devices > PEERS_MIN
    ]
    numbers = [each for each in earlier if each is not None]
    now = today.number(falls=falls)
    days = len({each.day for each in past if each.day < since})
    if now is None or days < ROLLOUT_DAYS_MIN or today.devices <= PEERS_MIN or not numbers:
        return None
    medians, mads = (np.array(each) for each in zip(*numbers, strict=True))
    before = float(np.median(medians))
    by_day = MAD_TO_SIGMA * float(np.median(np.abs(medians - before)))
    by_device = MAD_TO_SIGMA * float(np.median(mads))
    needed = max(SHIFT_MIN * by_device, DAY_SHIFT_MIN * by_day)
    shift = now[0] - before
    if needed <= 0 or (shift if only_above else abs(shift)) < needed:
        return None
    score = float(abs(shift) / needed * np.sqrt(today.devices))
    of = today.model, today.firmware, today.signal
    return Rollout(*of, before, now[0], days, today.devices, score)
