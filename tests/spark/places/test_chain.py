"""Which hours are computed again: all whose state may have changed, and few others."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_spark.places.chain import AHEAD_HOURS, STRETCH_HOURS, HourChain
from backhaul_spark.places.fold import VehicleFold
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.places.tasks import Stretch, folded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_spark.places.earth import Series

SETTINGS = PlacesSettings()
HOUR_S = 3600
Readings = dict[int, tuple[float, float]]


class InMemory:
    """A vehicle's readings and what is stored of it, as the job has them in tables."""

    def __init__(self) -> None:
        self.readings: Readings = {}
        self.states: dict[int, str] = {}
        self.rows: list[tuple[int, str, str]] = []
        self.computed: list[int] = []

    def take(self, readings: Readings) -> None:
        """Take readings in, and compute again what is due."""
        self.readings |= readings
        chain = HourChain("VID-001", {s // HOUR_S for s in readings})
        while chain.at is not None:
            before = self._before(chain.at) if chain.lacks else None
            stretch = chain.stretch(self._after(chain.at), before)
            states, rows = folded(stretch, self._by_hour(stretch), lambda f, n: [], SETTINGS)
            self.computed += states
            again = set(states)
            self.rows = [row for row in self.rows if row[0] not in again]
            self.rows += [(hour, table, repr(row)) for hour, table, row in rows]
            chain.take(states, self._after(stretch.hours[-1][0]))
        for hour in chain.changed:
            self.states[hour] = chain.states[hour]

    def said(self) -> Any:
        last = VehicleFold.of(self.states[max(self.states)]).open_rows(SETTINGS)
        return self.states, sorted(self.rows), last

    def _before(self, hour: int) -> str | None:
        earlier = [each for each in self.states if each < hour]
        return self.states[max(earlier)] if earlier else None

    def _after(self, hour: int) -> Iterator[tuple[int, str]]:
        return iter(sorted((h, state) for h, state in self.states.items() if h >= hour))

    def _by_hour(self, stretch: Stretch) -> dict[int, dict[Any, Series]]:
        found = {}
        for hour, _, _ in stretch.hours:
            times = sorted(s for s in self.readings if s // HOUR_S == hour)
            told = np.array([self.readings[s] for s in times]).reshape(-1, 2)
            ns = np.array(times, np.int64) * 1_000_000_000
            found[hour] = {"lat": (ns, told[:, 0]), "lon": (ns, told[:, 1])}
        return found


def journey(dice: random.Random, hours: int) -> Readings:
    """Return a way with stops, halts, jumps, jitter and gaps."""
    s, north, found = 60, 0.0, {0: (48.0, 11.0)}
    while s < hours * HOUR_S:
        what = dice.choice(("stand", "stand", "drive", "drive", "gap", "jump"))
        until = s + dice.choice((60, 200, 900, 4000))
        if what == "gap":
            s = until
        elif what == "jump":
            found[s] = 48 + dice.uniform(-5, 5), 11.0
            s += 60
        while what in ("stand", "drive") and s < until:
            north += 300.0 if what == "drive" else 0.0
            jitter = dice.gauss(0, 10)
            found[s] = 48 + (north + jitter) / 111_200, 11 + dice.gauss(0, 10) / 74_600
            s += 60
    return found


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 40), parts=st.integers(1, 8), hours=st.integers(1, 40))
def test_however_readings_are_cut_and_however_late_they_are_all_is_as_from_scratch(
    seed: int, parts: int, hours: int
) -> None:
    dice = random.Random(seed)
    whole = journey(dice, hours)
    times = sorted(whole)
    pieces: list[Readings] = [{} for _ in range(parts)]
    length = dice.choice((1, 10, 100, 1000))
    for at in range(0, len(times), length):
        dice.choice(pieces).update({s: whole[s] for s in times[at : at + length]})
    piecewise, at_once = InMemory(), InMemory()
    for piece in pieces:
        if piece:
            piecewise.take(piece)
    at_once.take(whole)
    assert piecewise.said() == at_once.said()


def test_a_late_reading_that_changes_nothing_is_looked_at_and_nothing_more() -> None:
    world = InMemory()
    hours = {h * HOUR_S + s: (48.0, 11.0) for h in range(100) for s in range(0, 3600, 600)}
    world.take(hours)
    world.computed.clear()
    world.take({50 * HOUR_S + 5: (60.0, 20.0)})  # a jump
    assert world.computed == [50]
    world.computed.clear()
    # A fix more is one more fix of the stop: to its end.
    world.take({90 * HOUR_S + 5: (48.0, 11.0)})
    assert world.computed == list(range(90, 100))


def test_a_stretch_ends_soon_after_the_last_touched_hour() -> None:
    stored = [(hour, "state") for hour in range(200)]
    chain = HourChain("VID-001", {10, 12, 90})
    stretch = chain.stretch(iter(stored[10:]), "before")
    assert [hour for hour, _, _ in stretch.hours] == list(range(10, 13 + AHEAD_HOURS))
    chain.take(
        {10: "state", 12: "other", **{12 + n: "other" for n in range(AHEAD_HOURS + 1)}},
        iter(stored[15:]),
    )
    assert (chain.at, chain.lacks) == (16, False)
    chain = HourChain("VID-001", set(range(100)))
    assert len(chain.stretch(iter([]), None).hours) == STRETCH_HOURS
