"""A real Prometheus scrapes hub, vehicle and jobs, and answers every question of the dashboards and rules."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from backhaul_agent.client import connect
from backhaul_agent.errors import RefusedError
from backhaul_spark.nats.offsets import ReadMark, to_json
from tests.integration.conditions import until_shown, world
from tests.integration.readings import keep
from tests.support.needed import lacking
from tests.support.rig.parts import Part, program, run_to_end
from tests.support.rig.ports import free_port
from tests.support.rig.relay import Relay
from tests.support.spark_fleet import Fleet
from tests.support.waiting import until

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.rig.parts import DeviceRig

__all__ = ["world"]  # a fixture

pytestmark = [pytest.mark.nats]

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
EMPTY = {
    "backhaul_spark_job_behind_messages{reader=twin": "no twin job has run here",
}
"""Questions (a part of each, without quotation marks) that no series answers in this test, and why."""

PEOPLE = """
[alerts.channels.nobody]
kind = "webhook"
url = "http://127.0.0.1:{port}/"
interval_s = 0

[[alerts.routes]]
channels = ["nobody"]
hold_s = 0
"""


def installed(name: str) -> str:
    """Return the path of a program of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        lacking(f"no {name}: tools/system-packages installs it, or apt-get install prometheus")
    return found


def asked_by_panels() -> dict[str, str]:
    """Return all questions of the dashboards, each with the panel that asks it."""
    found: dict[str, str] = {}
    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                found[target["expr"]] = f"{file.stem}: {panel['title']}"
    return found


async def test_the_files_are_those_that_the_panels_make(tmp_path: Path) -> None:
    await run_to_end([sys.executable, str(ROOT / "deploy/grafana/dashboards.py"), str(tmp_path)])
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert made == {file.name: file.read_text() for file in DASHBOARDS.iterdir()}
    assert len(made) == 3


async def test_promtool_finds_nothing_wrong_with_rules_and_configuration() -> None:
    said = await run_to_end([installed("promtool"), "check", "rules", str(RULES)])
    assert re.search(r"SUCCESS: \d+ rules found", said)
    await run_to_end(
        [installed("promtool"), "check", "config", str(RULES.parent / "prometheus.yml")]
    )


async def test_every_panel_and_every_rule_is_answered_by_a_real_prometheus(
    world: World, tmp_path: Path
) -> None:
    prometheus = installed("prometheus")
    ports = {name: free_port() for name in ("hub", "vehicles", "spark")}
    rig = await _with_metrics(world, ports)
    history = await _history(world, tmp_path)
    jobs = [program("backhaul-spark"), "metrics", "--hub-dir", str(world.hub.directory)]
    jobs += ["--table-root", history, "--listen", f"127.0.0.1:{ports['spark']}", "--every", "500ms"]
    port = free_port()
    flags = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    parts = [
        Part("jobs' metrics", jobs, tmp_path / "jobs.log"),
        Part(
            "prometheus",
            [prometheus, f"--config.file={_configuration(tmp_path, ports)}", *flags],
            tmp_path / "prometheus.log",
        ),
    ]
    try:
        for part in parts:
            await part.start()
        await parts[1].wait_listening(port)
        await until(lambda: _ready(port), "prometheus answers questions")
        await _all_answered(port, rig)
    finally:
        for part in parts:
            await part.stop()
    assert b"Traceback" not in parts[0].logged()


async def _with_metrics(world: World, ports: Mapping[str, int]) -> DeviceRig:
    """Bring up a vehicle that something is wrong with, and the hub that tells nobody of it, both with metrics on."""
    rig, relay = await world.vehicle_behind(
        Relay("127.0.0.1", world.hub.leaf_port), budget_mb_day=1.0
    )
    await rig.agent.stop()
    text = rig.agent_toml.read_text()
    listen = f'\n[metrics]\nlisten = "127.0.0.1:{ports["vehicles"]}"\n'
    rig.agent_toml.write_text(f"{text}{listen}\n[health]\ninterval_s = 0.1\npatience = 0\n")
    await world.hub.control.stop()
    toml = world.hub.directory / "hub.toml"
    listen = listen.replace(str(ports["vehicles"]), str(ports["hub"]))
    toml.write_text(toml.read_text() + listen + PEOPLE.format(port=free_port()))
    await world.hub.start_control()
    await rig.start_agent()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 50)
        with pytest.raises(RefusedError):
            await agent.publish("battery", "soc", 1.0, lane="no such lane")
    await relay.cut()
    await until_shown(world, "link-down")
    await until_shown(world, "people-not-told")
    return rig


async def _history(world: World, directory: Path) -> str:
    """Write tables, and a checkpoint that says that ingest has read two messages of UP."""
    root = directory / "tables"
    fleet = Fleet(root)
    fleet.send((0, 1.0), (7, 7.0))
    fleet.rollup()
    fleet.report_hours()
    fleet.send((9, 2.0))
    checkpoint = root / "_checkpoints" / "ingest"
    for name in ("commits", "offsets"):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "3").write_text(
            "v1\n{}\n" + json.dumps(to_json({"UP_00": ReadMark(2, "")}))
        )
    return str(root)


def _configuration(directory: Path, ports: Mapping[str, int]) -> Path:
    """Return the configuration that is shipped, for these ports and a test's patience."""
    text = (RULES.parent / "prometheus.yml").read_text()
    for name, shipped in (("hub", 9464), ("vehicles", 9465), ("spark", 9466)):
        assert f":{shipped}" in text
        text = text.replace(f":{shipped}", f":{ports[name]}")
    file = directory / "prometheus.yml"
    file.write_text(text.replace(": 15s", ": 500ms").replace("alerts.yml", str(RULES)))
    return file


async def _all_answered(port: int, rig: DeviceRig) -> None:
    """Ask until each question has series, but for those that are listed as empty; and all rules are well."""
    left = asked_by_panels()
    empty: dict[str, str] = {}
    end_s = asyncio.get_running_loop().time() + DEADLINE_S
    while left and asyncio.get_running_loop().time() < end_s:
        for ask in list(left):
            found = await _query(port, ask)
            if found:
                del left[ask]
            elif reason := next((r for part, r in EMPTY.items() if part in _bare(ask)), ""):
                empty[ask] = reason
                del left[ask]
        await asyncio.sleep(0.2)
    assert left == {}, f"no series; {rig.agent.logged()[-500:]!r}"
    assert len(empty) == len(EMPTY), "a question that is listed as empty is answered, or not asked"
    while True:
        rules = (await _get(port, "rules"))["groups"][0]["rules"]
        if all(rule["health"] == "ok" for rule in rules):
            break
        assert asyncio.get_running_loop().time() < end_s, rules
        await asyncio.sleep(0.2)
    # Nobody is told, which is an error of the hub, and waits for its minute.
    assert "BackhaulHubError" in {rule["name"] for rule in rules if rule["alerts"]}


def _ready(port: int) -> bool:
    """Tell whether it answers: it listens before it does."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=30):
            return True
    except HTTPError as refused:
        refused.close()
        return False


def _bare(ask: str) -> str:
    return re.sub(r'job="[^"]*", instance=~"[^"]*"(, )?', "", ask).replace('"', "")


async def _query(port: int, ask: str) -> list[Any]:
    ask = ask.replace("$__rate_interval", "5s").replace("$instance", ".*")
    found: list[Any] = (await _get(port, "query", query=ask))["result"]
    return found


async def _get(port: int, what: str, **more: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{what}?{urlencode(more)}"

    def read() -> bytes:
        with urlopen(url, timeout=30) as response:
            text: bytes = response.read()
            return text

    answer = json.loads(await asyncio.to_thread(read))
    assert answer["status"] == "success", answer
    return answer["data"]
