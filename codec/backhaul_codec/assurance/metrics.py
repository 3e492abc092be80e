"""Metrics of both ends: name, help, and labels of each. Pure."""

from __future__ import annotations

from typing import NamedTuple

GAUGE = "gauge"
COUNTER = "counter"


class Metric(NamedTuple):
    """One metric. A counter's ``name`` ends with ``_total``; units stand in names."""

    name: str
    help: str
    kind: str = GAUGE
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a metric; ``labels`` in the order of the metric's."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
