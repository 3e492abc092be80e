"""docs/metrics.md names every metric that is served, and the alerts ask for no other."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import aiohttp
import pytest

import backhaul_agent.status.metrics
import backhaul_hub.alerts.metrics
import backhaul_hub.health.metrics
import backhaul_spark.jobs.metrics
from backhaul_codec.assurance.conditions import Condition, Severity
from backhaul_codec.assurance.metrics import COUNTER, Metric, Sample
from backhaul_hub.alerts.alert import AlertKey, AlertRecord
from backhaul_hub.health.judge import DeviceFacts, FleetCounts, HealthFacts, LaneFacts
from backhaul_runtime import metrics_server, scrape_server
from backhaul_spark.jobs.metrics import JobsSeen
from tests.support.rig.ports import free_port
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
OF_THE_HUB = (*backhaul_hub.health.metrics.METRICS, *backhaul_hub.alerts.metrics.METRICS)
OF_THE_JOBS = backhaul_spark.jobs.metrics.METRICS
ALL = (*OF_THE_HUB, *backhaul_agent.status.metrics.METRICS, *OF_THE_JOBS)


def documented(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = re.findall(r"^\| `(backhaul_\w+)` \| (\w+) \| (.*?) \| .+ \|$", text, re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows}


@pytest.mark.parametrize(
    ("heading", "metrics"),
    [
        ("## At the hub", OF_THE_HUB),
        ("## On the vehicle", backhaul_agent.status.metrics.METRICS),
        ("## Of the jobs", OF_THE_JOBS),
    ],
)
def test_every_metric_is_documented_and_nothing_else(
    heading: str, metrics: tuple[Metric, ...]
) -> None:
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    assert documented(section) == {each.name: (each.kind, each.labels) for each in metrics}


def test_the_hub_counts_open_alerts_and_the_notices_that_wait() -> None:
    key = AlertKey("health", "VID-001", "link-down", "")
    alert = AlertRecord("1", key, "warning", "", "", 1, 1, 1)
    channels = {"ops": {"waiting": 3, "failures": 2, "error": "it answers 401"}}
    found = backhaul_hub.alerts.metrics.samples(
        [alert, alert, replace(alert, acked_ns=5)], channels
    )
    assert {(each.metric.name.removeprefix("backhaul_hub_"), each.labels): each.value for each in found} == {
        ("alerts_open", ("health", "warning", "no")): 2,
        ("alerts_open", ("health", "warning", "yes")): 1,
        ("notices_waiting", ("ops",)): 3,
        ("channel_failures", ("ops",)): 2,
    }  # fmt: skip


def test_a_job_is_behind_by_what_it_has_not_read_of_each_stream() -> None:
    seen = JobsSeen(
        5_000_000_000,
        {"UP_00": 10, "UP_01": 4, "UP_02": 3},
        {"ingest": {"UP_00": 7, "UP_01": 9}},
        ingested=6,
        rolled_up=4,
        written_ns={"points": 2_000_000_000},
    )
    found = {
        (each.metric.name.removeprefix("backhaul_spark_"), each.labels): float(each.value)
        for each in backhaul_spark.jobs.metrics.samples(seen)
    }
    assert found == {
        ("looked_timestamp_seconds", ()): 5, ("hub_up", ()): 1,
        ("job_behind_messages", ("ingest", "UP_00")): 3,
        ("job_behind_messages", ("ingest", "UP_01")): 4,  # made anew since
        ("job_behind_messages", ("ingest", "UP_02")): 3,
        ("ingests", ()): 6, ("rollup_behind_ingests", ()): 2,
        ("table_written_timestamp_seconds", ("points",)): 2,
    }  # fmt: skip
    away = {each.metric.name for each in backhaul_spark.jobs.metrics.samples(JobsSeen(5))}
    assert "backhaul_spark_job_behind_messages" not in away
    assert list(backhaul_spark.jobs.metrics.samples(None)) == []


def test_names_follow_the_convention() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL)
    for metric in ALL:
        assert metric.name.endswith("_total") is (metric.kind == COUNTER), metric.name
        assert "device" not in metric.labels


@pytest.mark.parametrize("name", ["prometheus/alerts.yml", "grafana/panels.py"])
def test_alerts_and_panels_ask_for_metrics_there_are(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    asked = set(re.findall(r"backhaul_(?:hub|agent|spark)_\w+", text))
    assert len(asked) > 3
    assert asked <= {metric.name for metric in ALL}


def test_every_metric_is_on_a_dashboard() -> None:
    text = (ROOT / "deploy" / "grafana" / "panels.py").read_text()
    named = set(re.findall(r"backhaul_\w+", text))
    assert {metric.name for metric in ALL} <= named


def test_the_hub_counts_devices_lanes_and_conditions_and_names_no_device() -> None:
    lanes = {"bulk": LaneFacts(owes=True, gap_ranges=2, arrivals=7, lag=3)}
    devices = {"VID-001": DeviceFacts(True, False, lanes, agent=False)}
    devices |= {"VID-002": DeviceFacts(False, True, {}), "VID-003": DeviceFacts(True, agent=True)}
    down = Condition("link-down", Severity.WARNING, "", "", "VID-002", "", "", 0)
    temporary = {"stream_name": "UP_00", "name": "x", "num_pending": 1, "num_ack_pending": 2}
    durable = temporary | {"name": "d", "config": {"durable_name": "d"}}
    fleet = FleetCounts(devices=3, up=2, agents=1, agents_down=1, clock_unset=1, arrivals=7)
    facts = HealthFacts([], [temporary, durable], {"UP_00": 9}, {"UP_00": 1}, devices, fleet=fleet)
    found = {
        (sample.metric.name.removeprefix("backhaul_hub_"), sample.labels): float(sample.value)
        for sample in backhaul_hub.health.metrics.samples(facts, [down, down], 5_000_000_000)
    }
    assert found == {
        ("leads", ()): 1, ("looked_timestamp_seconds", ()): 5, ("devices", ()): 3, ("devices_connected", ()): 2,
        ("devices_clock_unset", ()): 1, ("devices_agent_up", ()): 1, ("devices_agent_down", ()): 1,
        ("lane_arrivals", ()): 7, ("lane_gap_ranges", ()): 2,
        ("lanes_owing", ()): 1, ("source_lag_messages", ()): 3, ("jetstream_up", ()): 1,
        ("conditions", ("link-down", "warning")): 2, ("read_seq", ("UP_00",)): 9,
        ("quarantined_messages_total", ("UP_00",)): 1,
        ("consumer_pending_messages", ("UP_00", "d")): 1,
        ("consumer_ack_pending_messages", ("UP_00", "d")): 2,
    }  # fmt: skip
    (unseen,) = backhaul_hub.health.metrics.samples(facts, [], 0)
    assert (unseen.metric.name, unseen.value) == ("backhaul_hub_leads", 1)


async def test_half_open_questions_neither_add_up_nor_shut_others_out() -> None:
    port = free_port()

    def scrape() -> int:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return int(answer.status)

    before = threads()
    serving = asyncio.create_task(metrics_server.serve(f"127.0.0.1:{port}", ALL, list))
    held = []
    try:
        await until(lambda: listening(port))
        for _ in range(50):
            held.append(socket.create_connection(("127.0.0.1", port)))
            held[-1].send(b"GET /metrics HTTP/1.1\r\n")
        assert await asyncio.to_thread(scrape) == 200
        # The server's own, and one a connection.
        assert threads() - before <= scrape_server.OPEN_MAX + 1
    finally:
        for each in held:
            each.close()
        serving.cancel()
        await asyncio.wait([serving])
    await until(lambda: threads() <= before, "all threads have ended")


async def test_a_question_that_drips_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; the question does not."""
    now_s = 0.0
    port = free_port()
    server = scrape_server.ScrapeServer("127.0.0.1", port, lambda: now_s)
    server.set_app(lambda environ, start_response: [])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", port)) as dripping:
            dripping.settimeout(60)
            dripping.send(b"G")
            await until(lambda: bool(server._begun_s))
            now_s = scrape_server.OPEN_S_MAX + 1
            assert await asyncio.to_thread(dripping.recv, 10) == b""
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def threads() -> int:
    """Count all but those that asyncio keeps for later."""
    return sum(not each.name.startswith("asyncio_") for each in threading.enumerate())


def listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


async def test_a_question_that_is_left_open_is_refused_without_a_traceback_and_the_next_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_server, "ANSWER_S_MAX", 0.05)
    port, answered = free_port(), threading.Event()

    def stand_still() -> list[Sample]:
        assert answered.wait(60)
        return []

    def ask() -> int:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                return int(answer.status)
        except HTTPError as refused:
            with refused:
                return refused.code
        finally:
            answered.set()

    serving = asyncio.create_task(metrics_server.serve(f"127.0.0.1:{port}", ALL, stand_still))
    await asyncio.sleep(0)  # it takes connections from its first step on
    assert await asyncio.to_thread(ask) == 503
    monkeypatch.setattr(metrics_server, "ANSWER_S_MAX", 60.0)
    assert await asyncio.to_thread(ask) == 200
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    assert "Traceback" not in capsys.readouterr().err


async def test_an_address_is_free_as_soon_as_its_metrics_have_ended() -> None:
    """A machine that follows tells that it does; once it leads, its control plane listens there."""
    listen = f"127.0.0.1:{free_port()}"
    for value in (0, 1):
        leads = backhaul_hub.health.metrics.LEADS
        told = [Sample(leads, value)]
        serving = asyncio.create_task(metrics_server.serve(listen, [leads], told.copy))

        async def says(wanted: str = f"backhaul_hub_leads {value}.0") -> bool:
            try:
                async with aiohttp.request("GET", f"http://{listen}/metrics") as answer:
                    return wanted in await answer.text()
            except aiohttp.ClientConnectionError:
                return False

        await until(says, "it is told")
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
