"""The peers of each device: of one model and firmware, else of the model, else all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.fleet.robust import group_median, group_scale, group_upper

PEERS_MIN = 8
"""Fewer peers than this say nothing: the next larger cohort is asked."""
UPPER_SHARE, UPPER_SOME = 0.02, 3
POOL = 30
"""A cohort's own scale counts as much as the fleet's once it has so many members."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The figures that each device is measured against, one entry a device.

    Attributes:
        centre: the median of its peers; NaN where it has none.
        scale: the peers' robust standard deviation, widened for what few peers do not know; NaN
            where more than half of them are exactly alike.
        peers: how many others there are.
        level: 0 model and firmware, 1 model, 2 fleet, -1 none.
    """

    centre: Floats
    scale: Floats
    peers: Ints
    level: Ints


class Cohorts:
    """The devices of a fleet by model and firmware.

    Args:
        models, firmwares: of each device, "" where unknown. Devices of unknown model are a cohort
            too; so are those of unknown firmware.
    """

    def __init__(
        self, devices: Sequence[str], models: Sequence[str], firmwares: Sequence[str]
    ) -> None:
        self.devices, self.models, self.firmwares = list(devices), list(models), list(firmwares)
        pairs = list(zip(self.models, self.firmwares, strict=True))
        self.names = sorted(set(pairs))
        self.model_names = sorted(set(self.models))
        number = {name: i for i, name in enumerate(self.names)}
        model = {name: i for i, name in enumerate(self.model_names)}
        self.cohort = np.array([number[pair] for pair in pairs], dtype=np.int64)
        self.model = np.array([model[name] for name in self.models], dtype=np.int64)
        self._levels = (
            (self.cohort, len(self.names)),
            (self.model, len(self.model_names)),
            (np.zeros(len(devices), dtype=np.int64), 1),
        )

    def __len__(self) -> int:
        return len(self.devices)

    def level_of(self, present: Flags) -> Ints:
        """Return for each device the narrowest level at which PEERS_MIN others are present.

        `present`: (devices,) bool; the result is (devices,) int64.
        """
        level = np.full(len(self), -1, dtype=np.int64)
        for at in (2, 1, 0):
            level[self.others(present, at) >= PEERS_MIN] = at
        return level

    def others(self, present: Flags, level: int) -> Ints:
        """Return for each device how many others are present in its group of that level.

        `present`: (devices,) bool; the result is (devices,) int64.
        """
        group, groups = self._levels[level]
        sizes = np.bincount(group[present], minlength=groups).astype(np.int64)
        return sizes[group] - present

    def centre(self, values: Floats, level: Ints) -> Floats:
        """Return for each device the median of its group at its level (shape (n,)).

        `values` and the result: float64, in the unit of the signal. `level`: int64. All are (devices,).
        """
        centre = np.full(len(self), np.nan)
        for at, (group, groups) in enumerate(self._levels):
            here = level == at
            if here.any():
                centre[here] = group_median(values, group, groups)[0][group[here]]
        return centre

    def upper(self, values: Floats, level: Ints) -> Floats:
        """Return for each device a value that few of its group exceed; NaN without peers.

        `values` and the result: float64, in the unit of the signal. `level`: int64. All are (devices,).
        """
        upper = np.full(len(self), np.nan)
        for at, (group, groups) in enumerate(self._levels):
            here = level == at
            if here.any():
                found = group_upper(values, group, groups, UPPER_SHARE, UPPER_SOME)
                upper[here] = found[group[here]]
        return upper

    def reference(self, values: Floats) -> Reference:
        """Return the reference of each device's value (NaN: the device has none).

        `values`: (devices,) float64, in the unit of the signal.
        """
        present = ~np.isnan(values)
        level = self.level_of(present)
        level[~present] = -1
        centre, scale = np.full(len(self), np.nan), np.full(len(self), np.nan)
        peers = np.zeros(len(self), dtype=np.int64)
        for at, (group, groups) in enumerate(self._levels):
            here = level == at
            if not here.any():
                continue
            medians, sizes = group_median(values, group, groups)
            own = group_scale(values, group, groups, medians)
            enough = (sizes > PEERS_MIN) & (own > 0)
            usual = float(np.median(own[enough])) if enough.any() else 0.0
            pooled = np.sqrt((sizes * own**2 + POOL * usual**2) / (sizes + POOL))
            # The wider of both, and wider still by what the median of few does not know.
            wide = np.fmax(own, pooled) * (1 + 3 / np.maximum(sizes, 1))
            wide[~(own > 0)] = np.nan
            centre[here], scale[here] = medians[group[here]], wide[group[here]]
            peers[here] = self.others(present, at)[here]
        return Reference(centre, scale, peers, level)

    def describe(self, device: int, level: int) -> str:
        """Name the cohort of a device at a level, as `model A, firmware 4.2`."""
        model = self.models[device] or "unknown"
        if level == 0:
            return f"model {model}, firmware {self.firmwares[device] or 'unknown'}"
        return f"model {model}" if level == 1 else "the whole fleet"
