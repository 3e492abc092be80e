"""Real faults at a real hub: `backhaul-hub status` reports each, and is quiet once it is mended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import tomllib
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import nats
import pytest
from nats.js.api import ConsumerConfig

import backhaul_agent.status.metrics as agent_metrics
import backhaul_hub.alerts.metrics as alert_metrics
import backhaul_hub.health.metrics as hub_metrics
from backhaul_agent.client import connect
from tests.integration.conditions import until_shown, world
from tests.integration.hub_api import api
from tests.integration.readings import keep
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.ports import free_port
from tests.support.rig.relay import Relay

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["world"]  # a fixture

pytestmark = [pytest.mark.nats]


async def test_a_link_that_is_down_and_up_again(world: World) -> None:
    _, relay = await world.vehicle()
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    await until_shown(world, "link-down", shown=False)
    await relay.cut()
    found = await until_shown(world, "link-down")
    assert (found["device"], found["severity"]) == ("VID-001", "warning")
    await relay.heal()
    await until_shown(world, "link-down", shown=False)


async def test_a_gap_that_is_open_until_the_vehicle_sends_again(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250 * 20)
        await world.until(lambda report: lane(report).get("watermark", 0) == 20)
    await until_shown(world, "gap-open", shown=False)
    # The leaf stays connected; nobody is there to send anything again.
    await rig.agent.stop(signal.SIGKILL)
    await api(world, "STREAM.PURGE.UP_00", {"keep": 5})
    found = await until_shown(world, "gap-open")
    assert (found["device"], found["severity"]) == ("VID-001", "error")
    found = await until_shown(world, "source-stalled")
    assert (found["device"], found["detail"]) == ("VID-001", "at a lag of 0")
    await rig.start_agent()
    await until_shown(world, "gap-open", shown=False)
    await until_shown(world, "source-stalled", shown=False)


async def test_a_source_that_looks_well_and_brings_nothing(world: World) -> None:
    """Its durable is paused: the server at the hub goes on hearing heartbeats, and sees no lag."""
    rig, _ = await world.vehicle_behind(
        Relay("127.0.0.1", world.hub.leaf_port), stalled_after_s=1.0, push=False
    )
    token = tomllib.loads(rig.agent_toml.read_text())["device"]["token"]
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
        await world.until(lambda report: lane(report).get("watermark", 0) == 1)
        async with rig.connection() as leaf:
            pause = f"$JS.API.CONSUMER.PAUSE.OUT_bulk.{token}"
            until = {"pause_until": "2100-01-01T00:00:00Z"}
            await leaf.request(pause, json.dumps(until).encode())
            await keep(agent, 251, 250)
            found = await until_shown(world, "source-stalled", about="bulk")
            assert found["device"] == "VID-001"
            await leaf.request(pause, b"{}")
    await world.until(lambda report: lane(report).get("watermark", 0) == 2)
    await until_shown(world, "source-stalled", shown=False)


async def test_a_reader_that_lags_and_one_that_does_not_acknowledge(world: World) -> None:
    jetstream = (await world.hub_client()).jetstream()
    for number in range(20):
        await jetstream.publish(f"quarantine.test.1.{number}", b"garbage")
    subscription = await jetstream.pull_subscribe(
        "quarantine.>", "idle", config=ConsumerConfig(deliver_policy="all")  # type: ignore[arg-type]
    )  # fmt: skip
    assert (await until_shown(world, "consumer-lag"))["about"] == "QUARANTINE/idle"
    messages = await subscription.fetch(10)
    assert len(messages) == 10
    await until_shown(world, "ack-pending", detail="10 messages")
    await until_shown(world, "consumer-lag", shown=False)
    for message in messages:
        await message.ack_sync(timeout=DEADLINE_S)
    await until_shown(world, "ack-pending", shown=False)


async def test_a_control_plane_that_does_not_get_on(world: World) -> None:
    """Somebody else holds hub.db, so that nothing of what is read can be stored."""
    rig, _ = await world.vehicle()
    other = sqlite3.connect(world.hub.directory / "hub.db", isolation_level=None, timeout=60)
    ends, frames = asyncio.Event(), 0

    async def go_on() -> None:
        nonlocal frames
        async with connect(rig.url) as agent:
            while not ends.is_set():
                await keep(agent, 250 * frames + 1, 250)
                frames += 1

    async with asyncio.TaskGroup() as group:
        other.execute("BEGIN IMMEDIATE")
        group.create_task(go_on())
        assert (await until_shown(world, "reader-behind"))["about"] == "UP_00"
        ends.set()
    other.execute("ROLLBACK")
    other.close()
    await world.until(lambda report: lane(report).get("watermark", 0) == frames)
    await until_shown(world, "reader-behind", shown=False)


async def test_a_stream_that_is_nearly_full(world: World) -> None:
    jetstream = (await world.hub_client()).jetstream()
    await jetstream.publish("quarantine.test.1.1", bytes(900_000))
    assert (await until_shown(world, "stream-full"))["about"] == "QUARANTINE"
    await jetstream.purge_stream("QUARANTINE")
    await until_shown(world, "stream-full", shown=False)


async def test_garbage_is_told_for_a_while_and_a_script_can_check(world: World) -> None:
    rig = await world.sourced_vehicle()
    await until_shown(world, "link-down", shown=False)
    check = [program("backhaul-hub"), "status", "--check", "--dir", str(world.hub.directory)]
    local = await world.leaf_client(rig)

    seen = asyncio.Event()

    async def garbage() -> None:
        while not seen.is_set():  # it is told for three seconds, and we may look away for longer
            await local.request("f.battery", b"this is no frame")
            await asyncio.sleep(0.5)

    growing = asyncio.create_task(garbage())
    assert (await until_shown(world, "quarantine-grew"))["about"] == "UP_00"
    seen.set()  # not cancelled, which nats-py may miss
    await growing
    await until_shown(world, "quarantine-grew", shown=False)
    assert "1 devices, 1 connected" in await run_to_end(check[:2] + check[3:])
    await rig.leaf.stop()
    await until_shown(world, "link-down")
    process = await asyncio.create_subprocess_exec(*check, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 3
    assert "VID-001: warning link-down" in output.decode()


async def services(client: Client, subject: str) -> list[dict[str, Any]]:
    """Ask as `nats micro` does, with nothing but nats-py, and take every answer for a moment."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(subject, b"", reply=inbox)
    found: list[dict[str, Any]] = []
    try:
        while True:
            message = await subscription.next_msg(timeout=30 if not found else 0.5)
            found.append(json.loads(message.data))
    except nats.errors.TimeoutError:
        await subscription.unsubscribe()
        return found


async def test_both_are_nats_services_each_on_its_own_side_of_the_link(world: World) -> None:
    rig, _ = await world.vehicle()
    await until_shown(world, "link-down", shown=False)
    hub, local = await world.hub_client(), await world.leaf_client(rig)
    assert [each["name"] for each in await services(hub, "$SRV.PING")] == ["backhaul-hub"]
    (ping,) = await services(local, "$SRV.PING")
    assert (ping["name"], ping["metadata"]) == ("backhaul-agent", {"device": "VID-001"})
    (info,) = await services(local, "$SRV.INFO.backhaul-agent")
    assert [each["subject"] for each in info["endpoints"]] == ["agent.status"]
    await local.publish("agent.status", b"")  # nobody waits: no trouble
    await local.request("agent.status", b"")
    (stats,) = await services(local, f"$SRV.STATS.backhaul-agent.{ping['id']}")
    assert stats["endpoints"][0]["num_requests"] >= 2
    assert stats["endpoints"][0]["num_errors"] == 0
    (stats,) = await services(hub, "$SRV.STATS.backhaul-hub")
    assert stats["endpoints"][0]["num_requests"] >= 1


async def test_a_vehicle_says_itself_that_a_lane_stands_still_and_its_link_is_down(
    world: World,
) -> None:
    rig, relay = await world.vehicle()
    await rig.agent.stop()
    rig.agent_toml.write_text(
        rig.agent_toml.read_text() + "\n[health]\ninterval_s = 0.1\npatience = 0\n"
    )
    await rig.start_agent()
    command = [program("backhaul-agent"), "status", "--url", rig.url]

    async def says(words: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while words not in await run_to_end(command):
                pass

    # Nobody at the hub confirms anything; the link is as it was.
    await world.hub.control.stop()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
    await says("warning lane-stalled")
    await relay.cut()
    await says("warning link-down, the leaf server has no link to the hub")
    process = await asyncio.create_subprocess_exec(
        *command, "--check", "--json", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 3
    assert "link-down" in [each["code"] for each in json.loads(output)["conditions"]]


async def scrape(port: int, *wanted: str) -> str:
    """Ask as Prometheus does, until it is served and all that is wanted is in it."""
    url = f"http://127.0.0.1:{port}/metrics"
    text = ""
    for _ in range(2400):
        with contextlib.suppress(OSError):
            text = await asyncio.to_thread(lambda: urlopen(url, timeout=30).read().decode())
        if all(each in text for each in wanted):
            return text
        await asyncio.sleep(0.05)
    pytest.fail(f"not on {port}: {wanted} in {text}")


async def test_both_serve_every_metric_that_they_declare(world: World) -> None:
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
        await world.until(lambda report: lane(report).get("watermark", 0) == 1)
    hub_port, agent_port = free_port(), free_port()
    await world.hub.control.stop()
    toml = world.hub.directory / "hub.toml"
    for path, port in ((toml, hub_port), (rig.agent_toml, agent_port)):
        path.write_text(f'{path.read_text()}\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    await rig.agent.stop()
    rig.agent_toml.write_text(
        rig.agent_toml.read_text() + "\n[health]\ninterval_s = 0.1\npatience = 0\n"
    )
    await world.hub.start_control()
    await rig.start_agent()
    await relay.cut()
    hub = await scrape(
        hub_port, "_conditions{", "backhaul_hub_devices 1.0",
        'backhaul_hub_stream_messages{stream="TWIN_STATE"}',
    )  # fmt: skip
    vehicle = await scrape(
        agent_port, "_conditions{", 'backhaul_agent_lane_watermark_seq{lane="bulk"} 1.0'
    )
    of_the_hub = (*hub_metrics.METRICS, *alert_metrics.METRICS)
    for text, metrics in ((hub, of_the_hub), (vehicle, agent_metrics.METRICS)):
        described = set(re.findall(r"^# TYPE (\w+) \w+", text, re.MULTILINE))
        assert described == {metric.name for metric in metrics}
    # Served from a thread: both end in order all the same.
    await rig.agent.stop()
    await world.hub.control.stop()
    for part in (rig.agent, world.hub.control):
        assert b"Traceback" not in part.logged()


async def test_an_agent_that_is_dead_behind_a_link_that_is_up(world: World) -> None:
    rig, _ = await world.vehicle()
    await world.until(lambda report: report["devices"][0]["agent"]["up"] is True)
    await until_shown(world, "agent-down", shown=False)
    await rig.agent.stop(signal.SIGKILL)
    found = await until_shown(world, "agent-down")
    assert (found["device"], found["severity"]) == ("VID-001", "error")
    assert "systemctl restart backhaul-agent" in found["hint"]
    (device,) = (await world.report())["devices"]
    assert (device["link"]["up"], device["agent"]["up"]) == (True, False)
    command = [program("backhaul-hub"), "devices", "--dir", str(world.hub.directory)]
    (line,) = [
        line
        for line in (await run_to_end(command)).splitlines()
        if line.startswith("VID-001") and device["agent"]["machines"][-1]["machine"] in line
    ]
    assert line.split()[1] == "down"
    await rig.start_agent()
    await until_shown(world, "agent-down", shown=False)


async def test_what_is_wrong_on_a_vehicle_is_shown_at_the_hub(world: World) -> None:
    rig, _ = await world.vehicle()
    await rig.agent.stop()
    low = "\n[health]\ninterval_s = 0.1\npatience = 0\nledger_full_part = 0.0001\nrefused_shown_s = 90\n"
    rig.agent_toml.write_text(rig.agent_toml.read_text() + low)
    await rig.start_agent()
    found = await until_shown(world, "ledger-filling")
    assert (found["device"], found["severity"]) == ("VID-001", "warning")
    assert found["title"].startswith("on the vehicle: ")
    async with rig.connection() as leaf, asyncio.TaskGroup() as group:
        seen = asyncio.Event()

        async def garbage() -> None:
            while not seen.is_set():  # the first of a kind is none more than before
                await leaf.request("app.battery.soc", b"{")
                await asyncio.sleep(0.5)

        group.create_task(garbage())
        found = await until_shown(world, "publishers-refused", about="bad_json")
        seen.set()
    assert found["device"] == "VID-001"
    (device,) = (await world.report())["devices"]
    assert device["agent"]["ledger_pct"] is not None
    assert 0 <= device["agent"]["disk_pct"] <= 100
    assert ["ledger-filling", ""] in device["agent"]["conditions"]
