"""The agent's metrics for Prometheus, drawn from its own status (docs/metrics.md). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from backhaul_codec.assurance.metrics import COUNTER, Metric, Sample

_P = "backhaul_agent_"
UPTIME = Metric(f"{_P}uptime_seconds", "Since the agent started")
LINK_UP = Metric(f"{_P}link_up", "1 while the leaf server has its link to the hub")
LEAF_CONNECTED = Metric(f"{_P}leaf_connected", "1 while the agent is connected to the leaf server")
LEAF_CONNECTS = Metric(f"{_P}leaf_connects_total", "Connections made to the leaf server", COUNTER)
LEDGER = Metric(f"{_P}ledger_bytes", "Disk in use by the ledger")
LEDGER_MAX = Metric(f"{_P}ledger_max_bytes", "What the ledger may use")
EVICTED = Metric(f"{_P}ledger_evicted_messages_total", "Given up for room, with receipts", COUNTER)
POINTS = Metric(f"{_P}points_kept_total", "Points acknowledged to programs", COUNTER)
COMMITS = Metric(f"{_P}commits_total", "Transactions of the ledger", COUNTER)
FAILED = Metric(f"{_P}commits_failed_total", "Transactions that the disk refused", COUNTER)
REFUSED = Metric(
    f"{_P}refused_total", "What programs published and was refused", COUNTER, ("code",)
)
RECEIVED = Metric(f"{_P}downlink_messages_total", "Messages from the hub", COUNTER)
GARBAGE = Metric(f"{_P}downlink_garbage_total", "Those that could not be read", COUNTER)
LAST_SEQ = Metric(f"{_P}lane_last_seq", "The last seq the ledger gave out", labels=("lane",))
APPENDED = Metric(f"{_P}lane_appended_seq", "The last seq in the leaf's stream", labels=("lane",))
WATERMARK = Metric(f"{_P}lane_watermark_seq", "The hub holds all up to it", labels=("lane",))
OUTSTANDING = Metric(f"{_P}lane_outstanding_bytes", "Appended, not confirmed", labels=("lane",))
LINK_BYTES = Metric(f"{_P}link_bytes_total", "Carried by the link, both ways", COUNTER, ("kind",))
BUDGET = Metric(f"{_P}link_budget_bytes", "What the link may carry", labels=("period",))
BUDGET_USED = Metric(f"{_P}link_budget_used_bytes", "What it has carried", labels=("period",))
FLUSH = Metric(f"{_P}flush_seconds", "How long points wait for a message at most")
THINNED = Metric(f"{_P}points_thinned_total", "Not kept for want of budget", COUNTER)
CLOCK_OFFSET = Metric(f"{_P}clock_offset_seconds", "The hub's time minus the wall clock")
CLOCK_SYNCED = Metric(f"{_P}clock_synced", "1 while the time is known from the hub")
CONDITIONS = Metric(f"{_P}conditions", "Conditions shown", labels=("code", "severity"))

METRICS = (
    UPTIME, LINK_UP, LEAF_CONNECTED, LEAF_CONNECTS, LEDGER, LEDGER_MAX, EVICTED, POINTS, COMMITS,
    FAILED, REFUSED, RECEIVED, GARBAGE, LAST_SEQ, APPENDED, WATERMARK, OUTSTANDING,
    LINK_BYTES, BUDGET, BUDGET_USED, FLUSH, THINNED, CLOCK_OFFSET, CLOCK_SYNCED, CONDITIONS,
)  # fmt: skip


def samples(status: dict[str, Any]) -> Iterator[Sample]:
    """Yield the numbers of the status, as JSON has it."""
    ledger, counters, clock = status["ledger"], status["counters"], status["clock"]
    yield Sample(UPTIME, status["uptime_s"])
    yield Sample(LINK_UP, bool(status["link"]["up"]))
    yield Sample(LEAF_CONNECTED, status["connected"])
    yield Sample(LEAF_CONNECTS, status["connects"])
    yield Sample(LEDGER, ledger["bytes"])
    yield Sample(LEDGER_MAX, ledger["bytes_max"])
    yield Sample(EVICTED, ledger["evicted_messages"])
    yield Sample(POINTS, counters["points_kept"])
    yield Sample(COMMITS, counters["commits"])
    yield Sample(FAILED, counters["commits_failed"])
    yield Sample(RECEIVED, counters["downlink_messages"])
    yield Sample(GARBAGE, counters["downlink_garbage"])
    yield Sample(CLOCK_OFFSET, clock["offset_ns"] / 1e9)
    yield Sample(CLOCK_SYNCED, clock["quality"] == "synced")
    for code, count in counters["refused"].items():
        yield Sample(REFUSED, count, (str(code),))
    for name, lane in status["lanes"].items():
        yield Sample(LAST_SEQ, lane["last_seq"], (name,))
        yield Sample(APPENDED, lane["appended"], (name,))
        yield Sample(WATERMARK, lane["watermark"], (name,))
        yield Sample(OUTSTANDING, lane["outstanding_bytes"], (name,))
    yield from _of_budget(status["link"]["budget"])
    shown = Counter((each["code"], str(each["severity"])) for each in status["conditions"])
    for labels, count in shown.items():
        yield Sample(CONDITIONS, count, labels)


def _of_budget(budget: dict[str, Any]) -> Iterator[Sample]:
    for kind, size in budget["kinds"].items():
        yield Sample(LINK_BYTES, size, (kind,))
    for period in ("day", "month"):
        yield Sample(BUDGET, budget[period]["bytes_max"], (period,))
        yield Sample(BUDGET_USED, budget[period]["bytes"], (period,))
    yield Sample(FLUSH, budget["flush_s"])
    yield Sample(THINNED, budget["thinned_points"])
