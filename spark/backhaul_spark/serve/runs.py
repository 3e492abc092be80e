"""Texts over time: from when to when a series had the same one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TEXT_MAX = 200
"""Of a longer text so many characters are told."""
READINGS_MAX = 200_000
"""That are held in memory: the first and the last of each run."""


class TextRun(NamedTuple):
    """The same text from its first reading to its last (µs since 1970, both included)."""

    from_us: int
    to_us: int
    value: str


class TextRuns:
    """Takes texts in several orders of time: each call of `add` has one of its own."""

    def __init__(self) -> None:
        self._readings: list[tuple[int, str]] = []
        self.left_out = 0
        """Readings beyond those that are held."""

    def add(self, texts: Iterable[tuple[int, str]]) -> None:
        """Take texts with their times (µs since 1970), ascending."""
        held, begins = self._readings, len(self._readings)
        for at_us, text in texts:
            value = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
            if len(held) - begins >= 2 and held[-1][1] == held[-2][1] == value:
                held[-1] = at_us, value  # inside of a run nothing is to be known
            elif len(held) < READINGS_MAX:
                held.append((at_us, value))
            else:
                self.left_out += 1

    def shown(self, runs_max: int) -> tuple[list[TextRun], int]:
        """Return at most so many runs by time, the longest of them; and how many are not among them."""
        runs: list[TextRun] = []
        for at_us, value in sorted(self._readings, key=lambda reading: reading[0]):
            if runs and runs[-1].value == value:
                runs[-1] = runs[-1]._replace(to_us=at_us)
            else:
                runs.append(TextRun(at_us, at_us, value))
        longest = sorted(runs, key=lambda run: run.from_us - run.to_us)[:runs_max]
        return sorted(longest), len(runs) - len(longest) + self.left_out
