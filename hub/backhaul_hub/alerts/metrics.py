"""Metrics of alerts, and of the notices that wait for people. Pure.

As of the hub's others (`health/metrics.py`) none has a device for a label: channels are those of hub.toml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backhaul_codec.assurance.metrics import Metric, Sample
from backhaul_hub.alerts.alert import AlertRecord

_P = "backhaul_hub_"
OPEN = Metric(
    f"{_P}alerts_open", "Alerts that are not over", labels=("source", "severity", "acknowledged")
)
WAITING = Metric(
    f"{_P}notices_waiting", "Notices that a channel has not taken", labels=("channel",)
)
FAILURES = Metric(
    f"{_P}channel_failures", "Tries that failed since the last that did not", labels=("channel",)
)
METRICS = (OPEN, WAITING, FAILURES)


def samples(
    now_open: Iterable[AlertRecord], channels: Mapping[str, Mapping[str, Any]]
) -> Iterator[Sample]:
    """Yield all values.

    Args:
        now_open: the alerts that are open.
        channels: how each fares, as `NoticeDelivery.report` says it.
    """
    kinds = Counter(
        (each.key.source, each.severity, "yes" if each.acked_ns else "no") for each in now_open
    )
    for labels, count in kinds.items():
        yield Sample(OPEN, count, labels)
    for name, channel in channels.items():
        yield Sample(WAITING, channel["waiting"], (name,))
        yield Sample(FAILURES, channel["failures"], (name,))
