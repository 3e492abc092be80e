"""The panels of the dashboards, row by row: each asks Prometheus questions in plain PromQL.

Job and chosen instances are added to each metric by dashboards.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Panel(NamedTuple):
    """One panel.

    Args:
        title: what it shows.
        asks: questions, and how the series of each are named in the legend.
        unit: as Grafana names units.
        kind: `timeseries` or `stat`.
        width: of 24 columns.
        look: from this value on the number is yellow: somebody should look.
        act: from this value on it is red.
        about: more words, behind the (i) of the panel.
    """

    title: str
    asks: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    look: float | None = None
    act: float | None = None
    about: str = ""


def stat(title: str, ask: str, unit: str = "short", **more: Any) -> Panel:
    """Return a panel of one number."""
    return Panel(title, {ask: ""}, unit, "stat", 4, **more)


HUB = {
    "Fleet": [
        stat("Vehicles", "sum(backhaul_hub_devices)"),
        stat("Connected", "sum(backhaul_hub_devices_connected)"),
        stat("Link up, no agent", "sum(backhaul_hub_devices_agent_down)", look=1, act=10),
        stat("Errors", 'sum(backhaul_hub_conditions{severity="error"}) or vector(0)', act=1),
        stat(
            "Alerts not acknowledged",
            'sum(backhaul_hub_alerts_open{acknowledged="no"}) or vector(0)',
            look=1,
        ),
        stat(
            "Notices that wait",
            "sum(backhaul_hub_notices_waiting) or vector(0)",
            look=10,
            act=100,
            about="A channel that fails is the condition people-not-told (docs/alerts.md)",
        ),
    ],
    "Vehicles": [
        Panel(
            "Links",
            {
                "sum(backhaul_hub_devices)": "enrolled",
                "sum(backhaul_hub_devices_connected)": "connected",
                "sum(backhaul_hub_devices_agent_up)": "agent up",
                "sum(backhaul_hub_devices_clock_unset)": "clock unset",
            },
            width=12,
        ),
        Panel(
            "Conditions",
            {"sum by (code, severity) (backhaul_hub_conditions)": "{{code}} ({{severity}})"},
            width=12,
            about="docs/health.md names each; `backhaul-hub status` says which device",
        ),
    ],
    "Readings on their way": [
        Panel(
            "Messages a second into UP",
            {
                'sum by (stream) (rate(backhaul_hub_stream_last_seq{stream=~"UP_.*"}[$__rate_interval]))': "{{stream}}",
                "sum(deriv(backhaul_hub_lane_arrivals[$__rate_interval]))": "lanes, repeats included",
            },
            "cps",
        ),
        Panel(
            "Behind the vehicles' leaf servers",
            {"sum(backhaul_hub_source_lag_messages)": "messages"},
            about="Lag of all sources",
        ),
        Panel(
            "Lanes",
            {
                "sum(backhaul_hub_lanes_owing)": "owe messages",
                "sum(backhaul_hub_lane_gap_ranges)": "stretches missing",
            },
        ),
        Panel(
            "Not read by the control plane",
            {
                'backhaul_hub_stream_last_seq{stream=~"UP_.*"} - on (instance, stream) backhaul_hub_read_seq': "{{stream}}"
            },
        ),
        Panel(
            "Unreadable messages, in an hour",
            {"increase(backhaul_hub_quarantined_messages_total[1h])": "{{stream}}"},
        ),
        Panel(
            "Consumers",
            {
                "backhaul_hub_consumer_pending_messages": "{{stream}} {{consumer}}",
                "backhaul_hub_consumer_ack_pending_messages": "{{stream}} {{consumer}}, not acknowledged",
            },
        ),
    ],
    "Alerts and people": [
        Panel(
            "Open alerts",
            {"sum by (source, severity) (backhaul_hub_alerts_open)": "{{source}}, {{severity}}"},
        ),
        Panel("Notices that wait", {"backhaul_hub_notices_waiting": "{{channel}}"}),
        Panel("Failed tries in a row", {"backhaul_hub_channel_failures": "{{channel}}"}, look=3),
    ],
    "Server": [
        Panel(
            "Streams, part of their limit",
            {"backhaul_hub_stream_bytes / (backhaul_hub_stream_max_bytes > 0)": "{{stream}}"},
            "percentunit",
            look=0.8,
            act=0.95,
        ),
        Panel("Streams, messages", {"backhaul_hub_stream_messages": "{{stream}}"}),
        Panel("The control plane that leads", {"backhaul_hub_leads": "{{instance}}"}),
        Panel(
            "Age of the last look at health",
            {
                "time() - backhaul_hub_looked_timestamp_seconds": "{{instance}}",
                "(1 - backhaul_hub_jetstream_up) * 120": "{{instance}}: JetStream is silent",
            },
            "s",
            look=60,
            act=120,
        ),
    ],
}

VEHICLES = {
    "Now": [
        stat("Scraped", "sum(up)"),
        stat("Links up", "sum(backhaul_agent_link_up)"),
        stat("Leaf server away", "sum(1 - backhaul_agent_leaf_connected)", look=1),
        stat("Time not known", "sum(1 - backhaul_agent_clock_synced)", look=1),
        stat("Conditions", "sum(backhaul_agent_conditions) or vector(0)", look=1),
        stat(
            "Evicted, 24 h",
            "sum(increase(backhaul_agent_ledger_evicted_messages_total[24h]))",
            act=1,
        ),
    ],
    "Link": [
        Panel("Link up", {"backhaul_agent_link_up": "{{instance}}"}),
        Panel(
            "Bytes a second",
            {"sum by (kind) (rate(backhaul_agent_link_bytes_total[$__rate_interval]))": "{{kind}}"},
            "Bps",
        ),
        Panel(
            "Budget used",
            {
                "backhaul_agent_link_budget_used_bytes / (backhaul_agent_link_budget_bytes > 0)": "{{instance}}, {{period}}"
            },
            "percentunit",
            look=0.8,
            act=1,
        ),
        Panel(
            "Not confirmed by the hub, messages",
            {
                "backhaul_agent_lane_last_seq - backhaul_agent_lane_watermark_seq": "{{instance}} {{lane}}",
                "backhaul_agent_lane_last_seq - backhaul_agent_lane_appended_seq": "{{instance}} {{lane}}, not in the leaf's stream",
            },
        ),
        Panel(
            "Under way",
            {"backhaul_agent_lane_outstanding_bytes": "{{instance}} {{lane}}"},
            "bytes",
        ),
        Panel(
            "Connections to the leaf server, in an hour",
            {"increase(backhaul_agent_leaf_connects_total[1h])": "{{instance}}"},
        ),
    ],
    "Readings": [
        Panel(
            "Points a second",
            {"rate(backhaul_agent_points_kept_total[$__rate_interval])": "{{instance}}"},
            "cps",
        ),
        Panel(
            "Refused, in an hour",
            {
                "sum by (instance, code) (increase(backhaul_agent_refused_total[1h]))": "{{instance}} {{code}}",
                "increase(backhaul_agent_points_thinned_total[1h])": "{{instance}} thinned",
            },
        ),
        Panel(
            "Points wait for a message",
            {"backhaul_agent_flush_seconds": "{{instance}}"},
            "s",
        ),
    ],
    "Machine": [
        Panel(
            "Ledger, part of its limit",
            {"backhaul_agent_ledger_bytes / backhaul_agent_ledger_max_bytes": "{{instance}}"},
            "percentunit",
            look=0.8,
            act=0.95,
        ),
        Panel(
            "Commits of the ledger a second",
            {
                "rate(backhaul_agent_commits_total[$__rate_interval])": "{{instance}}",
                "rate(backhaul_agent_commits_failed_total[$__rate_interval])": "{{instance}}, refused by the disk",
            },
            "cps",
        ),
        Panel(
            "Clock, away from the hub's",
            {"backhaul_agent_clock_offset_seconds": "{{instance}}"},
            "s",
        ),
        Panel("Agent runs since", {"backhaul_agent_uptime_seconds": "{{instance}}"}, "s"),
        Panel(
            "Messages from the hub, in an hour",
            {
                "increase(backhaul_agent_downlink_messages_total[1h])": "{{instance}}",
                "increase(backhaul_agent_downlink_garbage_total[1h])": "{{instance}}, unreadable",
            },
        ),
        Panel(
            "Conditions",
            {
                "sum by (instance, code) (backhaul_agent_conditions)": "{{instance}} {{code}}",
            },
        ),
    ],
}

JOBS = {
    "Now": [
        stat(
            "Ingest has not read",
            'sum(backhaul_spark_job_behind_messages{reader="ingest"})',
            look=100_000,
            about="Messages of the hub's streams",
        ),
        stat(
            "Twin has not read",
            'sum(backhaul_spark_job_behind_messages{reader="twin"})',
            look=100_000,
            about="Messages of UP; those of DOWN are not counted",
        ),
        stat("Rollups lack, ingests", "sum(backhaul_spark_rollup_behind_ingests)"),
        stat(
            "Points, age of the last commit",
            'time() - max(backhaul_spark_table_written_timestamp_seconds{table="points"})',
            "s",
            look=600,
            act=3600,
        ),
        stat(
            "Rollups, age",
            'time() - max(backhaul_spark_table_written_timestamp_seconds{table="rollups"})',
            "s",
            look=7200,
            act=86_400,
        ),
        stat("Hub answers", "min(backhaul_spark_hub_up)"),
    ],
    "Streams": [
        Panel(
            "Messages not read",
            {"backhaul_spark_job_behind_messages": "{{reader}} {{stream}}"},
            width=12,
        ),
        Panel(
            "Falls behind by, messages a second",
            {
                "sum by (reader) (deriv(backhaul_spark_job_behind_messages[$__rate_interval]))": "{{reader}}"
            },
            "cps",
            width=12,
            about="Below 0 the job catches up",
        ),
    ],
    "Tables": [
        Panel(
            "Age of the last commit",
            {"time() - backhaul_spark_table_written_timestamp_seconds": "{{table}}"},
            "s",
        ),
        Panel(
            "Ingests",
            {
                "increase(backhaul_spark_ingests[1h])": "in an hour",
                "backhaul_spark_rollup_behind_ingests": "not in the rollups",
            },
        ),
        Panel(
            "Age of the last look",
            {"time() - backhaul_spark_looked_timestamp_seconds": "{{instance}}"},
            "s",
            look=120,
        ),
    ],
}

DASHBOARDS = {"hub": HUB, "vehicles": VEHICLES, "jobs": JOBS}
SCRAPED_AS = {"hub": "backhaul-hub", "vehicles": "backhaul-vehicles", "jobs": "backhaul-spark"}
"""The `job_name` of each in deploy/prometheus/prometheus.yml."""
