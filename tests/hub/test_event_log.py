"""Events at the hub: sourced from UP by transform, each read once, doubt named."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.assurance.completeness import (
    ALSO_IMPORTED,
    HOUR_NS,
    HourReport,
    Missing,
    Reasoned,
)
from backhaul_codec.points import JSON
from backhaul_codec.protocol.words import MarkWord
from backhaul_hub.cli.main import cli
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.twin.event_log import EventLog, find_events, hiding, read_event, standing
from backhaul_hub.uplink.device_words import WordBook
from backhaul_hub.uplink.lane_rows import ReadPosition, store_read
from backhaul_runtime.clock import SystemClock
from tests.hub.made_hub import make_hub
from tests.hub.sourced import sourced
from tests.support.rig import patient

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.nats.jetstream import Json
    from backhaul_hub.twin.event_log import FoundEvents
    from tests.support.nats_server import NatsServer

ARMED = "fleet.prod.veh.VID-001.evt.armed"


def body(seq: int, time: int = 100, *, epoch: int = 7, **said: Any) -> bytes:
    value = Opaque(JSON, json.dumps({"kind": "armed", **said}).encode())
    return encode_point(Point("", "armed", time, value), epoch=epoch, seq=seq)


def test_an_event_is_what_the_vehicle_said() -> None:
    found = read_event(ARMED, body(3, 1_777_636_800_250_000_000, reason="pilot", vid="forged"))
    assert found is not None
    assert found.to_json() == {
        "vid": "VID-001",
        "timestamp": "2026-05-01T12:00:00.25Z",
        "time": 1_777_636_800_250_000_000,
        "kind": "armed",
        "reason": "pilot",
        "epoch": 7,
        "seq": 3,
    }


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (ARMED, b""),
        (ARMED, b"{}"),
        (ARMED, body(0)),
        (ARMED, encode_point(Point("", "armed", 1, 5.0), epoch=7, seq=1)),
        (ARMED, encode_point(Point("", "armed", 1, Opaque(JSON, b"[]")), epoch=7, seq=1)),
        (ARMED, encode_point(Point("", "armed", 1, Opaque(JSON, b"{")), epoch=7, seq=1)),
        (ARMED, encode_frame([Point("n", "a", 1, 5.0), Point("n", "a", 2, 5.0)], epoch=7, seq=1)),
        ("fleet.prod.veh.VID-001.evt", body(1)),
        ("fleet.prod.veh.VID-001.evt.%6", body(1)),
        ("fleet.prod.veh.-.evt.armed", body(1)),
    ],
)
def test_what_is_no_event_is_counted_and_no_more(subject: str, message: bytes) -> None:
    assert read_event(subject, message) is None
    log = EventLog(0, 10)
    log.add(subject, message)
    assert log.found() == ([], 0, 0, 1, 0, ())


ALERT = "fleet.prod.veh.VID-001.evt.alert.hot.raised.0af1"


def alert_body(id_: str = "VID-001:hot:raised:5", time: int = 5, **more: Any) -> bytes:
    said = {"vid": "VID-009", "time": time, "id": id_, "text": "61 °C", "rule": "hot", **more}
    return json.dumps(said).encode()


def test_an_alert_is_an_event_of_the_device_in_its_subject() -> None:
    found = read_event(ALERT, alert_body(value=61.0))
    assert found is not None
    assert found.to_json() == {
        "vid": "VID-001",
        "timestamp": "1970-01-01T00:00:00.000000005Z",
        "time": 5,
        "kind": "alert",
        "reason": "61 °C",
        "data": {"rule": "hot", "value": 61.0},
        "id": "VID-001:hot:raised:5",
    }


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (ALERT, b""),
        (ALERT, b"[]"),
        (ALERT, b"{}"),
        (ALERT, b"[" * 100_000),
        (ALERT, rb'{"vid": "a", "time": 1, "id": "x", "text": "\ud800"}'),
        (ALERT, alert_body("")),
        (ALERT, alert_body(time=-1)),
        (ALERT, alert_body(time=1 << 63)),
        (ALERT.replace("VID-001", "-"), alert_body()),
        (ALERT.replace(".0af1", ""), alert_body()),
        (ALERT + ".more", alert_body()),
    ],
    ids=[
        "empty",
        "list",
        "bare",
        "deep",
        "half",
        "no id",
        "past",
        "future",
        "vid",
        "short",
        "long",
    ],
)
def test_what_is_no_alert_is_counted_and_no_more(subject: str, message: bytes) -> None:
    assert read_event(subject, message) is None


def test_alerts_of_one_moment_stand_beside_a_vehicles_events() -> None:
    log = EventLog(0, 10)
    for id_ in ("b", "a"):
        log.add(ALERT, alert_body(id_, 100))
    log.add(ARMED, body(3, 100))
    found = log.found()
    assert [event.id for event in found.events] == ["a", "b", ""]
    assert (found.repeats, found.unreadable) == (0, 0)


def test_alerts_that_say_the_same_of_themselves_are_all_told() -> None:
    """Whoever may publish alerts may give two of them one id, and has no say in what is found."""
    log = EventLog(0, 2)
    for number in range(3):
        log.add(f"{ALERT}{number}", alert_body(value=number))
    assert [event.said["data"]["value"] for event in log.found().events] == [1, 2]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(7, 8)), max_size=40),
    st.integers(1, 5),
    st.integers(0, 12),
)
def test_each_event_is_found_once_by_its_time_whatever_came_twice(
    arrived: list[tuple[int, int]], count_max: int, since: int
) -> None:
    log = EventLog(since, count_max)
    for seq, epoch in arrived:
        log.add(ARMED, body(seq, time=20 - seq, epoch=epoch))
    once = sorted((20 - seq, epoch, seq) for seq, epoch in set(arrived) if 20 - seq >= since)
    found = log.found()
    assert [(it.time, it.epoch, it.seq) for it in found.events] == once[-count_max:]
    assert found.earlier == len(once) - len(found.events)
    assert found.repeats == sum(20 - seq >= since for seq, _ in arrived) - len(once)


@pytest.mark.parametrize(
    ("state", "report"),
    [
        ("complete", HourReport(0, "complete", (7,))),
        ("complete", HourReport(0, "waiting", (7,), missing=(Missing("bulk", 7, 1, 2),))),
        ("waiting", HourReport(0, "waiting", (7,), missing=(Missing("live", 7, 1, 2),))),
        ("waiting", HourReport(0, "waiting", (7,), why="the vehicle has not spoken since")),
        ("complete", HourReport(0, "complete", (7,), why=ALSO_IMPORTED)),
        ("explained", HourReport(0, "explained", (7,), (), (Reasoned("live", 7, 1, 2, "full"),))),
        ("complete", HourReport(0, "explained", (7,), (), (Reasoned("bulk", 7, 1, 2, "full"),))),
    ],
)
def test_an_hour_hides_events_where_the_live_lane_is_in_doubt(
    state: str, report: HourReport
) -> None:
    assert hiding(report) == state


def test_a_stream_that_is_not_heard_is_named() -> None:
    sources = [
        {"name": "UP_00", "lag": 2, "active": 10**9},
        {"name": "UP_01", "lag": 0, "active": 9 * 10**9},
        {"name": "UP_02", "lag": 1, "active": -1},
    ]
    assert standing({"sources": sources}) == (3, ("UP_01", "UP_02"))
    assert standing({}) == (0, ())


def in_one_account(declared: Json) -> Json:
    """Return what is declared as for a server whose streams all stand in one account."""
    for source in declared.get("sources", []):
        del source["external"]
    return declared


async def put(api: JetStreamApi, subject: str, message: bytes) -> None:
    await api.publish(f"up.{subject}", message)


@pytest.mark.nats
async def test_the_stream_takes_programs_events_alone_and_every_shard(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, shards=2, free=16 << 30)
    client = await patient.connect(nats_server.url)
    try:
        api = JetStreamApi(client)
        for declared in declared_streams(config):
            if declared["name"].startswith("UP_"):  # as if vehicles were sourced
                declared["subjects"].append(f"up.VID-00{declared['name'][-1]}.>")
            await reconcile(api, in_one_account(declared))
        await put(api, "VID-000.e.app.armed", body(1, 5))
        await put(api, "VID-000.e.mark", body(2, 6))
        await put(api, "VID-000.e.receipt", body(3, 6))
        await put(api, "VID-000.p.app.app.app", body(4, 6))
        await put(api, "VID-001.e.app.mark", body(1, 7))
        await put(api, "VID-001.e.app.link%2Eup", body(2, 8))
        await put(api, "VID-001.e.app.link%2Eup", body(2, 8))
        await sourced(client, 4)

        async def found(device: str | None = None, kind: str | None = None) -> FoundEvents:
            devices = None if device is None else [device]
            log = EventLog(0, 9)
            return await find_events(client, "prod", log, devices=devices, kind=kind, since_ns=0)

        everything = await found()
        assert [(it.device, it.kind, it.time) for it in everything.events] == [
            ("VID-000", "armed", 5),
            ("VID-001", "mark", 7),
            ("VID-001", "link.up", 8),
        ]
        assert (everything.repeats, everything.unreadable) == (1, 0)
        assert [it.kind for it in (await found(device="VID-000")).events] == ["armed"]
        assert [it.time for it in (await found(kind="link.up")).events] == [8]
        assert (await found(device="VID-000", kind="mark")).events == []
        nobody = await find_events(client, "prod", EventLog(0, 9), devices=[], since_ns=0)
        assert nobody.events == []
        # Changes of UP's own sources, as vehicles come and go, bring nothing twice.
        info = await api.request("STREAM.INFO.UP_01")
        await api.request("STREAM.UPDATE.UP_01", info["config"] | {"description": "changed"})
        await put(api, "VID-001.e.app.armed", body(3, 9))
        await sourced(client, 5)
        assert len((await found()).events) == 4
    finally:
        await client.close()


@pytest.mark.nats
async def test_the_command_shows_events_and_where_others_may_be_missing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    config = make_hub(tmp_path, port=nats_server.port, free=16 << 30)
    now_ns = SystemClock().now_ns()
    async with await Registry.open(tmp_path / "hub.db") as registry:
        for device in ("VID-001", "VID-002"):
            await add_device(registry, Device(device, f"ab{device[-1]}", "", 0))
        continuity = Continuity()
        book = WordBook(continuity)
        key = LaneKey("VID-001", "live", 7)
        for seq, hours in ((1, 3), (2, 2), (4, 0)):
            continuity.arrived(key, seq, 10, now_ns)
            book.take(
                key, seq, MarkWord(now_ns - hours * HOUR_NS, 7, {"live": seq}, "hour"), now_ns
            )
        lanes, changes = continuity.take_changed(), book.take_changes()
        await store_read(registry, "UP_00", ReadPosition(), lanes, changes)
    client = await patient.connect(nats_server.url)
    try:
        api = JetStreamApi(client)
        for declared in declared_streams(config):
            if declared["name"] == "UP_00":
                declared["subjects"].append("up.*.>")
            await reconcile(api, in_one_account(declared))
        for seq, reason in ((8, "pilot"), (9, "\x1b[31m")):
            said = body(seq, now_ns - (10 - seq) * 60 * 10**9, previous="disarmed", reason=reason)
            await put(api, "VID-001.e.app.armed", said)
        await put(api, "VID-001.e.app.armed", body(1, now_ns - 90 * HOUR_NS))
        await sourced(client, 3)
    finally:
        await client.close()

    async def ask(*arguments: str) -> tuple[int, str]:
        command = ["events", *arguments, "--dir", str(tmp_path)]
        found = await asyncio.to_thread(CliRunner().invoke, cli, command)
        return found.exit_code, found.output if found.exit_code == 0 else str(found.exception)

    status, shown = await ask()
    assert status == 0, shown
    lines = shown.splitlines()
    assert lines[0].endswith("VID-001  armed  previous=disarmed  reason=pilot")
    assert lines[1].endswith(r'reason="\u001b[31m"'), "nothing that a terminal would obey"
    assert "waiting, from" in lines[2]
    assert "events of those may be missing (backhaul-hub completeness VID-001)" in lines[2]
    assert lines[3] == "# VID-002 had not spoken yet in any of these hours"
    assert len((await ask("VID-001", "--limit", "1"))[1].splitlines()) == 3
    said = json.loads((await ask("VID-001", "--kind", "armed", "--json"))[1])
    assert [event["reason"] for event in said["events"]] == ["pilot", "\x1b[31m"]
    assert said["hours"]["VID-001"]["waiting"] == len(said["hours"]["VID-001"]["not_complete"]) > 0
    assert (await ask("VID-001", "--kind", "none"))[1].startswith("# ")
    assert "there is no device VID-9" in (await ask("VID-9"))[1]
    assert "8784 at most" in (await ask("--since", "2020-01-01"))[1], "hours that nobody looks at"
