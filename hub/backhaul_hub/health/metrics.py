"""The hub's metrics for Prometheus, from the last look at its health. Pure.

None has a device for a label: a fleet of 10,000 would make hundreds of thousands of series. Which device
it is, `backhaul-hub status --json` and `devices --json` say (docs/metrics.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from backhaul_codec.assurance.conditions import Condition
from backhaul_codec.assurance.metrics import COUNTER, Metric, Sample
from backhaul_hub.health.judge import HealthFacts
from backhaul_hub.nats.jetstream import Json

_P = "backhaul_hub_"
_STREAM, _CONSUMER = ("stream",), ("stream", "consumer")
LEADS = Metric(f"{_P}leads", "1 at the control plane that leads, 0 at one that follows")
LOOKED = Metric(f"{_P}looked_timestamp_seconds", "When all of this was seen")
DEVICES = Metric(f"{_P}devices", "Devices that are enrolled")
CONNECTED = Metric(f"{_P}devices_connected", "Those whose link is up")
AGENTS = Metric(f"{_P}devices_agent_up", "Those whose agent is connected to their leaf server")
AGENTS_DOWN = Metric(f"{_P}devices_agent_down", "Those whose link is up, and no agent runs")
UNSET = Metric(f"{_P}devices_clock_unset", "Those that do not know the time")
CONDITIONS = Metric(f"{_P}conditions", "Conditions shown", labels=("code", "severity"))
ARRIVALS = Metric(f"{_P}lane_arrivals", "Messages of all lanes, repeats included")
GAPS = Metric(f"{_P}lane_gap_ranges", "Stretches that are missing, of all lanes")
OWING = Metric(f"{_P}lanes_owing", "Lanes that owe messages")
LAG = Metric(f"{_P}source_lag_messages", "Lag of all sources, by the server's account")
JETSTREAM = Metric(f"{_P}jetstream_up", "1 while the server answers for its streams")
READ = Metric(f"{_P}read_seq", "The last sequence of UP that was read", labels=_STREAM)
QUARANTINED = Metric(f"{_P}quarantined_messages_total", "Unreadable ones", COUNTER, _STREAM)
BYTES = Metric(f"{_P}stream_bytes", "What a stream holds", labels=_STREAM)
BYTES_MAX = Metric(f"{_P}stream_max_bytes", "What it may hold", labels=_STREAM)
MESSAGES = Metric(f"{_P}stream_messages", "Messages in a stream", labels=_STREAM)
LAST_SEQ = Metric(f"{_P}stream_last_seq", "The last sequence of a stream", labels=_STREAM)
PENDING = Metric(f"{_P}consumer_pending_messages", "Before a durable consumer", labels=_CONSUMER)
ACK_PENDING = Metric(f"{_P}consumer_ack_pending_messages", "Not acknowledged", labels=_CONSUMER)

METRICS = (
    LEADS, LOOKED, DEVICES, CONNECTED, AGENTS, AGENTS_DOWN, UNSET, CONDITIONS, ARRIVALS, GAPS, OWING, LAG, JETSTREAM,
    READ, QUARANTINED, BYTES, BYTES_MAX, MESSAGES, LAST_SEQ, PENDING, ACK_PENDING,
)  # fmt: skip


def samples(facts: HealthFacts, shown: Sequence[Condition], looked_ns: int) -> Iterator[Sample]:
    """Yield all values; before the first look only that this control plane leads."""
    yield Sample(LEADS, 1)
    if not looked_ns:
        return
    fleet = facts.fleet
    lanes = [lane for device in facts.devices.values() for lane in device.lanes.values()]
    yield Sample(LOOKED, looked_ns / 1e9)
    yield Sample(DEVICES, fleet.devices)
    yield Sample(CONNECTED, fleet.up)
    yield Sample(AGENTS, fleet.agents)
    yield Sample(AGENTS_DOWN, fleet.agents_down)
    yield Sample(UNSET, fleet.clock_unset)
    yield Sample(ARRIVALS, fleet.arrivals)
    yield Sample(GAPS, sum(lane.gap_ranges for lane in lanes))
    yield Sample(OWING, sum(lane.owes for lane in lanes))
    yield Sample(LAG, sum(lane.lag or 0 for lane in lanes))
    yield Sample(JETSTREAM, facts.streams is not None)
    for labels, count in Counter((each.code, str(each.severity)) for each in shown).items():
        yield Sample(CONDITIONS, count, labels)
    for stream, seq in facts.read.items():
        yield Sample(READ, seq, (stream,))
    for stream, count in facts.quarantined.items():
        yield Sample(QUARANTINED, count, (stream,))
    for info in facts.streams or []:
        yield from _of_stream(info)
    for info in facts.consumers:
        # Those without a name of their own come and go, each a series more.
        if info.get("config", {}).get("durable_name"):
            labels = (info["stream_name"], info["name"])
            yield Sample(PENDING, info["num_pending"], labels)
            yield Sample(ACK_PENDING, info["num_ack_pending"], labels)


def _of_stream(info: Json) -> Iterator[Sample]:
    stream, state = (info["config"]["name"],), info["state"]
    yield Sample(BYTES, state["bytes"], stream)
    yield Sample(BYTES_MAX, info["config"].get("max_bytes", -1), stream)
    yield Sample(MESSAGES, state["messages"], stream)
    yield Sample(LAST_SEQ, state["last_seq"], stream)
