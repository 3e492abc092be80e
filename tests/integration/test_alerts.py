"""Alerts and commands of the twin job at a real hub: who hears of them, and that each command starts once."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.rules.alert import Alert, alert_table
from backhaul_spark.sink.alert_tables import AlertTables
from backhaul_spark.sink.outgoing import digest_of
from backhaul_spark.sink.outlet import Outlet, Written
from backhaul_spark.sink.publisher import Publisher
from backhaul_spark.tables.schemas import SNAPSHOTS

from .conftest import DEADLINE_S

if TYPE_CHECKING:
    from .conftest import World

pytestmark = pytest.mark.nats


def hot(device: str, time_ns: int) -> Alert:
    said: dict[str, Any] = {"rule": "hot", "kind": "raised", "severity": "critical"}
    return Alert(
        device=device,
        time_ns=time_ns,
        text="battery is at 61 °C",
        command="cool_down",
        params={"target_c": 55},
        **said,
    )


async def operator(world: World, *arguments: str) -> Any:
    return json.loads(await asked(*arguments, "--dir", str(world.hub.directory), "--json"))


async def person(world: World, *arguments: str) -> Any:
    creds, server = str(world.directory / "ann.creds"), world.hub.addresses()[0]
    return json.loads(await asked(*arguments, "--creds", creds, "--server", server, "--json"))


async def asked(*words: str) -> str:
    """Run a command in this process and return what it prints."""
    done = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert done.exit_code == 0, done.exception or done.output
    return done.stdout


async def write(world: World, alerts: list[Alert], batch: int) -> Written:
    """Write a batch as a driver does that has just started."""
    options = {
        "servers": world.hub.addresses()[0],
        "credentials": str(world.hub.directory / "creds" / "twin.creds"),
    }

    def run() -> Written:
        # What is not acknowledged in ten seconds is sent again, and then counts as a repeat.
        patient = partial(Connection, timeout_s=DEADLINE_S)
        publisher = Publisher(endpoint_from(options), connect=patient)
        tables = AlertTables(str(world.directory / "tables"), SYSTEM_CLOCK)
        outlet = Outlet(publisher, tables, "prod", SYSTEM_CLOCK)
        try:
            return outlet.write(batch, alert_table(alerts), SNAPSHOTS.empty_table())
        finally:
            outlet.close()

    return await asyncio.to_thread(run)


async def test_alerts_are_heard_as_events_are_and_a_command_starts_once(world: World) -> None:
    hub_dir = ("--dir", str(world.hub.directory))
    for device in ("VID-001", "VID-002"):
        await asked("add-device", device, *hub_dir)
    creds = str(world.directory / "ann.creds")
    await asked("user", "add", "ann", "--group", "VID-001", "--out", creds, *hub_dir)
    control = await world.hub_client()
    live = await control.subscribe("up.fleet.*.$.event.alert")
    await control.flush()
    now_ns = time.time_ns()
    alerts = [hot("VID-001", now_ns), hot("VID-002", now_ns), hot("VID-002", now_ns + 1)]
    assert await write(world, alerts, 0) == ((3, 0, 0), (3, 0, 0), 3, 0)
    # The control plane has the commands recorded; the job is started again and says it all once more.
    async with asyncio.timeout(DEADLINE_S):
        while len(await operator(world, "commands")) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await write(world, alerts, 1) == ((0, 3, 0), (0, 3, 0), 0, 0)

    commands = await operator(world, "commands")
    assert {each["id"] for each in commands} == {digest_of(each.id) for each in alerts}
    assert {each["who"] for each in commands} == {"twin:hot"}
    assert len(commands) == 3

    everything = (await operator(world, "events"))["events"]
    assert [each["id"] for each in everything] == [each.id for each in alerts]
    assert everything[0]["reason"] == "battery is at 61 °C"
    assert everything[0]["data"]["severity"] == "critical"
    assert (await operator(world, "events", "--kind", "armed"))["events"] == []
    assert len((await operator(world, "events", "VID-002", "--kind", "alert"))["events"]) == 2

    heard = [json.loads((await live.next_msg(DEADLINE_S)).data)["id"] for _ in range(3)]
    assert heard == [each.id for each in alerts]
    assert live.pending_msgs == 0, "each once"

    # A person sees what is below her group.
    seen = (await person(world, "events"))["events"]
    assert [each["vid"] for each in seen] == ["VID-001"]
