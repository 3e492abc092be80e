"""Detectors of libraries, as `detector` and `together` compare ours with them. No part of the product needs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backhaul_spark.detect.joint import JOINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.machines import Floats
    from tests.support.nab import Recording

# Of the learning time's scores, the share that lies below the limit.
_SHARE = 0.99
# Readings of a subsequence; of four lengths the best on the first half.
_SUBSEQUENCE = 24


@dataclass(frozen=True, slots=True)
class Rival:
    """A way to score one series, and the library that it needs."""

    name: str
    library: str
    scores: Callable[[Recording], Floats]


def half_space_trees(recording: Recording) -> Floats:
    """Return scores of river's half-space trees over the reading, its change and its hour."""
    from river import anomaly, compose, preprocessing  # type: ignore[import-not-found]

    model = compose.Pipeline(preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=1))
    hours = recording.times_ns // 3_600_000_000_000 % 24
    changes = np.diff(recording.values, prepend=recording.values[0])
    scores = []
    for value, change, hour in zip(
        recording.values.tolist(), changes.tolist(), hours.tolist(), strict=True
    ):
        row = {"value": value, "change": change, "hour": hour}
        scores.append(model.score_one(row))
        model.learn_one(row)
    return np.array(scores, dtype=float)


def left_matrix_profile(recording: Recording) -> Floats:
    """Return the distance of each subsequence from the nearest one before it (stumpy's streaming profile)."""
    import stumpy  # type: ignore[import-not-found]

    values = recording.values.astype(float)
    begin = max(recording.probation, 2 * _SUBSEQUENCE)
    stream = stumpy.stumpi(values[:begin], m=_SUBSEQUENCE, egress=False)
    scores = np.zeros(len(values))
    for at in range(begin, len(values)):
        stream.update(float(values[at]))
        scores[at] = stream.left_P_[-1]
    return np.nan_to_num(scores, posinf=0.0)


RIVALS = (
    Rival("river HalfSpaceTrees", "river", half_space_trees),
    Rival("stumpy stumpi", "stumpy", left_matrix_profile),
)


def principal_components(values: Floats) -> Floats:
    """Return the larger of T-squared and Q of each row, each in parts of its limit."""
    middle, unit = _units(values)
    rows = (values - middle) / unit
    weights, axes = np.linalg.eigh(np.cov(rows[: JOINT.learning].T))
    order = np.argsort(-weights)
    weights, axes = weights[order], axes[:, order]
    kept = int(np.searchsorted(np.cumsum(weights) / weights.sum(), 0.9)) + 1
    turned = rows @ axes
    inside = (turned[:, :kept] ** 2 / (weights[:kept] + 1e-9)).sum(axis=1)
    outside = ((rows - turned[:, :kept] @ axes[:, :kept].T) ** 2).sum(axis=1)
    return np.maximum(_in_limits(inside), _in_limits(outside))


def autoregression(values: Floats) -> Floats:
    """Return the distance of each row from what a linear autoregression with ridge says, in parts of its limit."""
    middle, unit = _units(values)
    rows = (values - middle) / unit
    now, before = rows[1 : JOINT.learning], rows[: JOINT.learning - 1]
    same = np.eye(values.shape[1])
    follows = np.linalg.solve(before.T @ before + 10 * same, before.T @ now)
    off = np.vstack([np.zeros((1, len(same))), rows[1:] - rows[:-1] @ follows])
    inverse = np.linalg.inv(np.cov(off[1 : JOINT.learning].T) + 0.01 * same)
    return _in_limits(np.einsum("ij,jk,ik->i", off, inverse, off))


def isolation_forest(values: Floats) -> Floats:
    """Return scikit-learn's isolation forest's score of each row, in parts of its limit."""
    from sklearn.ensemble import IsolationForest  # type: ignore[import-not-found]

    forest = IsolationForest(random_state=0).fit(values[: JOINT.learning])
    return _in_limits(-forest.score_samples(values))


def _units(values: Floats) -> tuple[Any, Any]:
    learnt = values[: JOINT.learning]
    return learnt.mean(axis=0), learnt.std(axis=0) + 1e-9


def _in_limits(scores: Floats) -> Floats:
    return scores / np.quantile(scores[: JOINT.learning], _SHARE)
