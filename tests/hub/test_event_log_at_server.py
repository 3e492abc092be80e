"""With real servers: events at the hub: sourced from UP by transform, each read once, doubt named."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.assurance.completeness import (
    HOUR_NS,
)
from backhaul_codec.points import JSON
from backhaul_codec.protocol.words import MarkWord
from backhaul_hub.cli.main import cli
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.lane_rows import ReadPosition, store_read
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.twin.event_log import EventLog, find_events
from backhaul_runtime.clock import SystemClock
from tests.hub.made_hub import make_hub
from tests.hub.sourced import sourced
from tests.support.rig import patient

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.nats.jetstream import Json
    from backhaul_hub.twin.event_log import FoundEvents
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


def body(seq: int, time: int = 100, *, epoch: int = 7, **said: Any) -> bytes:
    value = Opaque(JSON, json.dumps({"kind": "armed", **said}).encode())
    return encode_point(Point("", "armed", time, value), epoch=epoch, seq=seq)


def in_one_account(declared: Json) -> Json:
    """Return what is declared as for a server whose streams all stand in one account."""
    for source in declared.get("sources", []):
        del source["external"]
    return declared


async def put(api: JetStreamApi, subject: str, message: bytes) -> None:
    await api.publish(f"up.{subject}", message)


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
