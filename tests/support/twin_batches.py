"""Batches for the twin's engine, made without a server: what devices said, and when it was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backhaul_spark.decode.sample_batch import (
    ALIVE,
    AWAY,
    MESSAGE,
    SAMPLE,
    UNTIMELY,
    Batch,
    HeadWord,
    device_hash,
    lane_hashes,
)
from backhaul_spark.rules.config import plan_from
from backhaul_spark.rules.engine import Engine
from backhaul_spark.rules.snapshot import snapshot_table
from backhaul_spark.rules.twins import Twins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_spark.rules.alert import Alert

S = 1_000_000_000
T0 = 1_767_225_600 * S  # 2026-01-01T00:00:00Z


class Bucket:
    """One bucket's engine and state, spoken to in seconds after T0."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.plan = plan_from(config or {}, "test")
        self.engine = Engine(self.plan)
        self.twins = Twins(self.plan)
        self.alerts: list[Alert] = []
        self._messages: list[tuple[int, int, int, int, int]] = []
        self._samples: list[tuple[int, int, int, float]] = []
        self._heads: list[HeadWord] = []
        self._devices: set[str] = set()
        self._seq = 0
        self._watched_ns = 0

    def say(
        self,
        device: str,
        stored_s: float,
        *samples: tuple[str, float, float],
        seq: int | None = None,
        lane: str = "bulk",
        mark: int = 0,
    ) -> None:
        """Add a message: samples are (series, seconds, value)."""
        self._seq = self._seq + 1 if seq is None else seq
        key = device_hash(device)
        [lane_key] = lane_hashes(
            np.array([key], np.uint64), np.array([device_hash(lane)], np.uint64), np.array([1])
        )
        names = [str(series) for series in self.plan.series]
        for series, time_s, value in samples:
            code = UNTIMELY if series == "untimely" else names.index(series)
            self._samples.append((len(self._messages), code, T0 + int(time_s * S), value))
        self._messages.append((key, int(lane_key), self._seq, T0 + int(stored_s * S), mark))
        self._devices.add(device)

    def see(self, device: str, at_s: float, *, there: bool) -> None:
        """Add the hub's word that a device's agent is there, or gone."""
        mark = ALIVE if there else AWAY
        self._messages.append((device_hash(device), 0, 0, T0 + int(at_s * S), mark))
        self._devices.add(device)
        self.beat(at_s)

    def beat(self, at_s: float) -> None:
        """Add the hub's word that it looks who is there."""
        self._watched_ns = T0 + int(at_s * S)

    def set(
        self, device: str, at_s: float, value: float, *, origin: str = "hub", tombstone: int = 0
    ) -> None:
        """Write the first config point that the rules know."""
        self._heads.append(HeadWord(device, 0, T0 + int(at_s * S), origin, tombstone, value))

    def batch(self) -> Batch:
        """Return what was said since, as a batch."""
        batch = Batch(
            np.array(self._messages, MESSAGE),
            np.array(self._samples, SAMPLE),
            sorted(self._devices),
            self._heads,
            self._watched_ns,
        )
        self._messages, self._samples, self._heads, self._devices = [], [], [], set()
        return batch

    def run(self, now_s: float) -> list[Alert]:
        """Take in what was said since."""
        alerts, _ = self.engine.take(self.twins, self.batch(), T0 + int(now_s * S))
        self.alerts += alerts
        return alerts

    def run_until(self, now_s: float, until_s: float) -> list[Alert]:
        """Take in what was said since, where the streams are read up to `until_s`."""
        now_ns, until_ns = T0 + int(now_s * S), T0 + int(until_s * S)
        alerts, _ = self.engine.take(self.twins, self.batch(), now_ns, until_ns)
        self.alerts += alerts
        return alerts

    def tick(self, now_s: float, until_s: float | None = None) -> list[Alert]:
        """Look at all devices."""
        now_ns = T0 + int(now_s * S)
        until_ns = now_ns if until_s is None else T0 + int(until_s * S)
        alerts, _ = self.engine.tick(self.twins, now_ns, until_ns)
        self.alerts += alerts
        return alerts

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the snapshots of all devices."""
        rows = np.arange(len(self.twins.devices))
        found: list[dict[str, Any]] = snapshot_table(self.plan, self.twins, rows, T0).to_pylist()
        return found

    def restart(self) -> None:
        """Go on with what was packed, as another process would."""
        packed, names = self.twins.pack(), self.twins.pack_names()
        self.twins = Twins(self.plan)
        self.twins.unpack_numbers(packed)
        self.twins.unpack_names(names)


def spoken(alerts: Sequence[Alert]) -> list[tuple[str, str, float]]:
    """Return rule, kind and seconds of each."""
    return [(alert.rule, alert.kind, (alert.time_ns - T0) / S) for alert in alerts]
