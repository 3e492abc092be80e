"""The plan that the configuration makes: which rules run over which series, with which durations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from backhaul_spark.decode.series import SeriesKey
from backhaul_spark.rules.rule import SECOND_NS, Spoken

# Codes of signals are one byte, and the last one is taken (batch.UNTIMELY).
SERIES_MAX = 250


@dataclass(frozen=True)
class Plan:
    """The engine's plan.

    `statistics`: series that rolling figures are kept of, the state of charge first. `late_after_s`: see
    docs/twin-actor.md. `snapshot_every_s`: at most so often is a device shown that speaks. `partitions`:
    so many tasks keep the state side by side.
    """

    rules: tuple[Spoken, ...]
    statistics: tuple[SeriesKey, ...] = (SeriesKey("battery", "soc"),)
    late_after_s: float = 120.0
    snapshot_every_s: float = 60.0
    forget_after_s: float = 30 * 86400.0
    buckets: int = 8
    partitions: int = 1
    tick_s: float = 5.0
    grace_s: float = 60.0
    series: tuple[SeriesKey, ...] = field(init=False)
    heads: tuple[SeriesKey, ...] = field(init=False)

    def __post_init__(self) -> None:
        signals = [*self.statistics, *(s for rule in self.rules for s in rule.signals.values())]
        heads = [head for rule in self.rules for head in rule.heads.values()]
        object.__setattr__(self, "series", _once(signals))
        object.__setattr__(self, "heads", _once(heads))
        assert len(self.series) <= SERIES_MAX

    @property
    def late_after_ns(self) -> int:
        """Return `late_after_s` in ns."""
        return int(self.late_after_s * SECOND_NS)


def _once(series: Iterable[SeriesKey]) -> tuple[SeriesKey, ...]:
    return tuple(dict.fromkeys(series))
