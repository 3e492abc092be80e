"""Alerts of rules and of health reach people over real servers, once, whenever the control plane is killed."""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from deltalake import write_deltalake

from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.people.identity import May, Person
from backhaul_runtime.clock import SystemClock
from backhaul_spark.fleet.standing import as_table
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import ANOMALIES_TABLE, ROLLUPS_TABLE
from tests.support.hub_acts import add_person, create_device
from tests.support.receivers import HttpReceiver, MailReceiver, http_receiver, mail_receiver
from tests.support.rig.parts import HubRig, program, run_to_end
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.nats
ALERTS = """
[health]
interval_s = 0.2
patience = 0
[alerts]
hold_s = 0
[alerts.channels.pager]
kind = "webhook"
url = "http://127.0.0.1:{http}/hook"
interval_s = 0.1
[alerts.channels.ops]
kind = "smtp"
host = "127.0.0.1"
port = {mail}
tls = "none"
sender = "hub@example.org"
to = ["ops@example.org"]
interval_s = 0.1
[[alerts.routes]]
channels = ["pager"]
sources = ["rule", "anomaly"]
groups = ["plant-7"]
[[alerts.routes]]
channels = ["ops"]
names = ["people-not-told"]
"""
ANNA, DORA = Person("anna", "plant-7", May.WRITE), Person("dora", "depot", May.WRITE)


def hot(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rule's alerts of an answer: no vehicle of these is connected, so there are others."""
    return [each for each in answer["alerts"] if each["name"] == "too-hot"]


class World:
    """A hub with an alert of each kind to come, and those whom it tells."""

    def __init__(self, hub: HubRig, pager: HttpReceiver, mails: MailReceiver) -> None:
        self.hub, self.pager, self.mails = hub, pager, mails

    async def say(
        self, kind: str, *, device: str = "VID-001", text: str = "61 °C", number: int = 1
    ) -> None:
        """Publish as the twin job does."""
        time_ns = SystemClock().now_ns()
        id_ = f"{device}:too-hot:{kind}:{time_ns}"
        said = {"vid": device, "time": time_ns, "id": id_, "rule": "too-hot", "kind": kind}
        said |= {
            "severity": "critical",
            "late": False,
            "node": "battery",
            "type": "temp",
            "key": "",
        }
        subject = f"fleet.prod.veh.{device}.evt.alert.too-hot.{kind}.{time_ns}{number}"
        async with self.hub.connection() as client:
            body = json.dumps(said | {"text": text, "value": 61.0, "limit": 60.0}).encode()
            await client.jetstream().publish(subject, body)

    async def command(self, *words: str) -> str:
        return await run_to_end([program("backhaul-hub"), *words, "--dir", str(self.hub.directory)])

    async def json(self, *words: str) -> Any:
        return json.loads(await self.command(*words, "--json"))

    async def ask(self, person: Person, *words: str) -> Any:
        creds = str(self.hub.directory / "people" / f"{person.name}.creds")
        server = self.hub.addresses()[0]
        line = [program("backhaul-hub"), *words, "--creds", creds, "--server", server, "--json"]
        return json.loads(await run_to_end(line))


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        pager = await stack.enter_async_context(http_receiver())
        mails = await stack.enter_async_context(mail_receiver())
        hub = HubRig(tmp_path / "hub", watermark_interval_s=0.2)
        await hub.init()
        with (hub.directory / "hub.toml").open("a") as file:
            file.write(ALERTS.format(http=pager.port, mail=mails.port))
        for device in ("VID-001", "VID-002"):
            config = load(hub.directory)
            await create_device(hub.directory, config, SystemClock(), device, DeviceSettings())
        stack.push_async_callback(hub.stop)
        await hub.start()
        some = World(hub, pager, mails)
        async with hub.connection() as client:
            for group, device in (("plant-7", "VID-001"), ("depot", "VID-002")):
                for asked in (
                    {"do": "create", "address": group},
                    {"do": "move", "address": device, "under": group},
                ):
                    answer = await client.request(
                        "hub.node", json.dumps(asked).encode(), timeout=60
                    )
                    assert "error" not in json.loads(answer.data)
        for person in (ANNA, DORA):
            creds = hub.directory / "people" / f"{person.name}.creds"
            await add_person(hub.directory, SystemClock(), person, creds)
        yield some


async def test_alerts_reach_people_once_over_kills_and_failures(world: World) -> None:
    pager, hub = world.pager, world.hub
    # Of another group: told nobody, and no one of this group sees it.
    await world.say("raised", device="VID-002")
    await world.say("raised", text="<b>61</b>\r\nBcc: x@y")
    await until(lambda: pager.told() == ["raised VID-001 too-hot"])
    assert pager.taken[0][1]["notices"][0]["alert"]["text"] == "<b>61</b> Bcc: x@y"

    [alert] = hot(await world.ask(ANNA, "alerts"))
    assert [each["device"] for each in hot(await world.ask(DORA, "alerts"))] == ["VID-002"]
    acked = await world.ask(ANNA, "alerts", "ack", alert["id"], "--note", "on my way")
    assert acked["acknowledged"]["by"] == "anna"
    with pytest.raises(Exception, match=r"no alert .* is open"):
        await world.ask(DORA, "alerts", "ack", alert["id"])

    # Killed, and it is over meanwhile.
    await hub.control.stop(signal.SIGKILL)
    await world.say("cleared")
    pager.hold.clear()
    await hub.start_control()
    await until(lambda: len(pager.tried) == 2)
    # Killed while the receiver has the message, and has not answered.
    await hub.control.stop(signal.SIGKILL)
    pager.hold.set()
    await until(lambda: len(pager.ids) >= 1)
    await hub.start_control()
    await until(lambda: "over VID-001 too-hot" in pager.told())
    assert len({each["message"] for each in pager.tried}) == 2, "again, under the same name"

    past = hot(await world.json("alerts", "list", "VID-001", "--past"))
    assert [(each["state"], each["acknowledged"]["by"]) for each in past] == [("past", "anna")]
    told = (await world.json("alerts", "list", "--id", alert["id"]))["notices"]
    assert [each["kind"] for each in told] == ["raised", "over"]


async def test_a_channel_that_fails_is_a_condition_and_an_alert_of_its_own(world: World) -> None:
    pager = world.pager
    pager.hold.clear()
    await world.hub.control.stop()
    text = (world.hub.directory / "hub.toml").read_text()
    text = text.replace("interval_s = 0.1\n", "interval_s = 0.1\ntimeout_s = 0.5\n", 1)
    (world.hub.directory / "hub.toml").write_text(text)
    await world.hub.start_control()
    await world.say("raised")
    await until(lambda: bool(world.mails.taken))
    subject = str(world.mails.taken[0][1]["Subject"])
    assert subject == "[backhaul] critical: hub people-not-told pager"
    assert "backhaul-hub notify test pager" in world.mails.taken[0][1].get_content()
    [found] = [
        each for each in (await world.json("status"))["conditions"] if each["about"] == "pager"
    ]
    assert "no answer within 0.5 s" in found["detail"]

    pager.hold.set()
    # Before it is tried again by itself, or after.
    assert "pager has taken it" in await world.command("notify", "test", "pager")
    await until(lambda: "raised VID-001 too-hot" in pager.told())
    await until(lambda: any("over: " in str(made["Subject"]) for _, made in world.mails.taken))


async def test_a_silence_and_a_dry_run_say_who_is_told(world: World) -> None:
    silence = await world.ask(
        ANNA, "alerts", "silence", "VID-001", "--for", "2h", "--why", "repair"
    )
    with pytest.raises(Exception, match="may write below depot only"):
        await world.ask(DORA, "alerts", "silence", "VID-001", "--for", "2h")
    await world.say("raised")

    found: list[Any] = []

    async def shown() -> bool:
        found[:] = hot(await world.json("alerts", "VID-001"))
        return bool(found)

    await until(shown)
    assert found[0]["silent_until_ns"] == silence["until_ns"]
    dry = await world.command("notify", "dry-run")
    assert "critical VID-001 too-hot: 61 °C\n    nobody for 2 h: it is silenced; then pager" in dry
    asked = await world.command("notify", "dry-run", "--device", "VID-002", "--severity", "warning")
    assert "nobody: no route fits" in asked
    assert world.pager.tried == []
    await world.ask(ANNA, "alerts", "unsilence", str(silence["id"]))
    await until(lambda: world.pager.told() == ["raised VID-001 too-hot"])
    assert "good. Channels to people: ops, pager" in await world.command("check-config")


async def test_a_change_of_an_alert_is_heard_below_the_group_alone(world: World) -> None:
    async with world.hub.connection() as client:
        heard = await client.subscribe("up.plant-7.>")
        others = await client.subscribe("up.depot.>")
        await client.flush()
        await world.say("raised")
        while True:
            message = await heard.next_msg(timeout=60)
            if b"too-hot" in message.data and ".$.alert." in message.subject:
                break
        said = json.loads(message.data)
        assert message.subject == f"up.plant-7.VID-001.$.alert.{said['id']}"
        assert (said["state"], said["name"]) == ("open", "too-hot")
        while others.pending_msgs:
            assert b"VID-001" not in (await others.next_msg(timeout=60)).data


@pytest.mark.slow
async def test_an_anomaly_is_an_alert_once_however_often_the_job_runs(
    world: World, tmp_path: Path
) -> None:
    root = str(tmp_path / "tables")
    day = datetime.fromtimestamp(SystemClock().now_ns() / 1e9 - 86_400, UTC).date()
    make_table(root, ROLLUPS_TABLE)
    stuck = {"id": f"{day}:stuck:VID-001", "kind": "stuck", "device": "VID-001", "node": "cabin"}
    row = dict.fromkeys(ANOMALIES_TABLE.schema.names) | stuck
    row |= {"type": "temp", "key": "", "model": "", "firmware": "", "text": "sticks", "rank": 1}
    row |= {"state": "open", "version": 1, "date": day}
    write_deltalake(
        make_table(root, ANOMALIES_TABLE), as_table([row], ANOMALIES_TABLE.schema), mode="append"
    )
    line = [program("backhaul-spark"), "anomalies", "--table-root", root]
    for _ in range(2):
        await run_to_end([*line, "--hub-dir", str(world.hub.directory)])
    await until(lambda: world.pager.told() == ["raised VID-001 anomaly.stuck"])
    found = (await world.json("alerts", "VID-001"))["alerts"]
    assert [each["about"] for each in found if each["source"] == "anomaly"] == ["cabin.temp"]
