"""The sources of a real stream follow who is connected, and which lanes each device has."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.config import load
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.device import Device, DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.links.source_keeper import SourceKeeper
from backhaul_hub.links.sources import PUSHED, sourced
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.nats.jetstream import Json
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats

DEADLINE_S = 120.0
SHARED = {"live", "bulk"}
OWN = Device("VID-001", "ab", "", 0, nodes=("battery",))
PLAIN = Device("VID-002", "cd", "", 0)


class Recorded(JetStreamApi):
    """The server's API; remembers what the stream was told to source."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.told: list[set[str]] = []

    async def request(
        self,
        verb: str,
        body: Json | None = None,
        *,
        api: str = "",
        timeout_s: float | None = None,
    ) -> Json:
        if verb.startswith("STREAM.UPDATE") and body is not None:
            self.told.append({place.lane for place in sourced({"config": body})})
        return await super().request(verb, body, api=api, timeout_s=timeout_s)


class Kept:
    """A keeper at work on a stream."""

    def __init__(self, keeper: SourceKeeper, api: Recorded, devices: dict[str, Device]) -> None:
        self.keeper = keeper
        self.devices = devices
        self.in_hub_db = dict(devices)
        self.api = api
        self.trouble: HubError | None = None

    async def learn(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        before = dict(self.devices)
        self.devices.clear()
        self.devices.update(self.in_hub_db)
        self.keeper.change(before)

    async def info(self) -> Any:
        return await self.api.request("STREAM.INFO.RELAY_00")

    async def comes_to(self, device: str, lanes: set[str]) -> None:
        """Wait until these lanes of a device are sourced, and no others."""
        found: set[str] = set()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    found = {it.lane for it in sourced(await self.info()) if it.device == device}
                    if found == lanes:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"{device} is sourced as {found}, not {lanes}")


@pytest.fixture
async def kept(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[Kept]:
    async with AsyncExitStack() as stack:
        client = await patient.connect(nats_server.url)
        stack.push_async_callback(client.close)
        api = Recorded(client)
        await api.request(
            "STREAM.CREATE.RELAY_00", {"name": "RELAY_00", "subjects": ["nothing.here"]}
        )
        layout = HubLayout("127.0.0.1", "127.0.0.1", 4222, 7422, "nats-leaf://hub:7422", 1, 5.0)
        create_hub(tmp_path / "hub", layout)
        devices = {OWN.id: OWN, PLAIN.id: PLAIN}
        keeper = SourceKeeper(load(tmp_path / "hub"), SystemClock(), Continuity(), lambda: devices)
        await keeper.start(api)
        kept = Kept(keeper, api, devices)
        task = asyncio.create_task(keeper.keep(api, kept.learn))
        yield kept
        task.cancel()
        await asyncio.wait([task])


async def test_a_connected_device_is_sourced_in_all_its_lanes(kept: Kept) -> None:
    kept.keeper.connected(OWN.id)
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    kept.keeper.disconnected(PLAIN.id)
    await kept.comes_to(PLAIN.id, set())
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})


async def test_lanes_come_and_go_while_their_device_is_connected_and_only_then(kept: Kept) -> None:
    kept.keeper.connected(OWN.id)
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})
    kept.in_hub_db[OWN.id] = replace(OWN, nodes=("gps",), leaving=("battery",))
    kept.in_hub_db[PLAIN.id] = replace(PLAIN, nodes=("gps",))
    await kept.learn()
    await kept.comes_to(OWN.id, {*SHARED, "n_battery", "n_gps"})
    await kept.comes_to(PLAIN.id, set())
    kept.in_hub_db[OWN.id] = replace(OWN, nodes=("gps",))
    await kept.learn()
    # The server may still wait for the answer of what it set up: not before that is over.
    await kept.comes_to(OWN.id, {*SHARED, "n_gps"})


async def test_a_device_that_connects_before_it_is_known_is_looked_up(kept: Kept) -> None:
    kept.in_hub_db["VID-003"] = replace(PLAIN, id="VID-003", token="ef")
    kept.keeper.connected("VID-003")
    await kept.comes_to("VID-003", SHARED)
    kept.keeper.connected("VID-004")
    kept.keeper.disconnected("VID-004")
    await kept.comes_to("VID-004", set())


async def test_who_is_known_is_sourced_while_nobody_can_be_looked_up(kept: Kept) -> None:
    """As where DOWN has no leader."""
    kept.trouble = HubError("no answer")
    kept.in_hub_db["VID-003"] = replace(PLAIN, id="VID-003", token="ef")
    kept.keeper.connected("VID-003")
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    kept.trouble = None
    await kept.comes_to("VID-003", SHARED)


async def test_a_lane_that_is_refused_is_set_up_again_and_the_others_are_left_alone(
    kept: Kept,
) -> None:
    kept.keeper.connected(OWN.id)
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})
    info = await kept.info()
    info["sources"] = [
        {"name": f"OUT_{lane}", "external": {"api": f"$JS.{OWN.id}.API"}, "lag": lag}
        | {"active": 1, "seq": 5, **extra}
        for lane, lag, extra in [
            ("live", 0, {}),
            ("bulk", 7, {}),
            ("n_battery", 0, {"error": {"description": "stream not found"}}),
        ]
    ]
    link = DeviceLink(up=True, since_ns=SystemClock().now_ns() - 60 * 10**9)
    kept.keeper.look([info], SystemClock().monotonic_s(), {OWN.id: link})
    assert kept.keeper.lags == {(OWN.id, "live"): 0, (OWN.id, "bulk"): 7, (OWN.id, "n_battery"): 0}
    await until(lambda: kept.api.told[1:] == [SHARED, {*SHARED, "n_battery"}])


async def test_of_a_device_that_is_gone_no_lag_is_known_whenever_its_stream_was_looked_at(
    kept: Kept,
) -> None:
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    info = await kept.info()
    info["sources"] = [source | {"active": 1, "lag": 7} for source in info["sources"]]
    asked_s = SystemClock().monotonic_s()
    kept.keeper.look([info], asked_s, {})
    assert set(kept.keeper.lags.values()) == {7}
    kept.keeper.disconnected(PLAIN.id)
    kept.keeper.look([info], asked_s, {})
    assert kept.keeper.lags == {}


async def test_a_source_that_somebody_removed_is_there_again(kept: Kept) -> None:
    kept.keeper.connected(OWN.id)
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})
    before = await kept.info()
    # They have heard their device: nothing is in the way of setting them up anew.
    heard = [source | {"active": 1, "lag": 0} for source in before["sources"]]
    kept.keeper.look([before | {"sources": heard}], SystemClock().monotonic_s(), {})
    await kept.api.request("STREAM.UPDATE.RELAY_00", before["config"] | {"sources": []})
    kept.keeper.look([await kept.info()], SystemClock().monotonic_s(), {})
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})


async def test_a_source_that_somebody_added_is_taken_out(kept: Kept) -> None:
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    await kept.api.request("STREAM.CREATE.ELSEWHERE", {"name": "ELSEWHERE", "subjects": ["else"]})
    config = (await kept.info())["config"]
    added = config | {"sources": [*config["sources"], {"name": "ELSEWHERE"}]}
    await kept.api.request("STREAM.UPDATE.RELAY_00", added)
    assert "ELSEWHERE" in {each.lane for each in sourced(await kept.info())}
    async with asyncio.timeout(DEADLINE_S):
        while any(each.lane == "ELSEWHERE" for each in sourced(await kept.info())):
            asked_s = SystemClock().monotonic_s()
            kept.keeper.look([await kept.info()], asked_s, {})
            await asyncio.sleep(0.1)
    await kept.comes_to(PLAIN.id, SHARED)


async def test_what_was_asked_before_a_stream_was_told_is_not_believed(kept: Kept) -> None:
    asked_s, before = SystemClock().monotonic_s(), await kept.info()
    kept.keeper.connected(OWN.id)
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})
    kept.keeper.look([before], asked_s, {})
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    assert kept.api.told == [{*SHARED, "n_battery"}, {*SHARED, "n_battery"}], "by lane, once each"


@pytest.mark.parametrize(("said", "held"), [(0, True), (1, False)])
async def test_a_lane_that_carried_nothing_sleeps_unless_it_is_known_to_owe_something(
    kept: Kept, said: int, held: bool
) -> None:
    """The hub knows no such lane, or one of another epoch."""
    continuity = kept.keeper._continuity
    continuity.arrived(LaneKey(PLAIN.id, "bulk", 6), 1, 10, 1)
    continuity.say(LaneKey(PLAIN.id, "bulk", 7), said)
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    assert kept.keeper.push(PLAIN.id, 7, {"bulk": 0}) == []
    await kept.comes_to(PLAIN.id, {*SHARED, PUSHED})
    kept.keeper.pushes.heard(PLAIN.id, {"active": 1})
    asleep = kept.keeper.push(PLAIN.id, 7, {"bulk": 0})
    assert asleep == (["bulk"] if held else [])


async def test_a_device_that_connects_has_its_pushes_sourced_by_its_newest_token(
    kept: Kept,
) -> None:
    kept.keeper.connected(PLAIN.id)
    kept.keeper.push(PLAIN.id, 7, {"bulk": 0})
    await kept.comes_to(PLAIN.id, {*SHARED, PUSHED})
    kept.in_hub_db[PLAIN.id] = replace(PLAIN, token="ef")
    await kept.learn()
    kept.keeper.connected(PLAIN.id)
    await kept.comes_to(PLAIN.id, SHARED)
    kept.keeper.push(PLAIN.id, 7, {"bulk": 0})
    await kept.comes_to(PLAIN.id, {*SHARED, PUSHED})
    sources = (await kept.info())["config"]["sources"]
    assert f"u.{PLAIN.id}.ef.>" in str(sources)


async def test_a_lane_that_is_woken_late_has_time_to_hear_its_device(kept: Kept) -> None:
    """Its link is long up, and its source is new: on a link of 20 kbit/s it hears nothing for seconds."""
    kept.keeper.connected(PLAIN.id)
    kept.keeper.push(PLAIN.id, 7, {"bulk": 0, "live": 0})
    await kept.comes_to(PLAIN.id, {*SHARED, PUSHED})
    kept.keeper.pushes.heard(PLAIN.id, {"active": 1})
    assert kept.keeper.push(PLAIN.id, 7, {"bulk": 0, "live": 0}) == ["bulk", "live"]
    await kept.comes_to(PLAIN.id, {PUSHED})
    kept.keeper.push(PLAIN.id, 7, {"live": 0})
    kept.keeper.stands_still(LaneKey(PLAIN.id, "live", 7), 1)
    await kept.comes_to(PLAIN.id, {*SHARED, PUSHED})
    info = await kept.info()
    for source in info["sources"]:
        source["active"] = -1
        if source["name"] == "PUSH":
            source["active"] = 1
    link = DeviceLink(up=True, since_ns=SystemClock().now_ns() - 60 * 10**9)
    told = len(kept.api.told)
    kept.keeper.look([info], SystemClock().monotonic_s(), {PLAIN.id: link})
    kept.keeper.connected(OWN.id)
    await kept.comes_to(OWN.id, {*SHARED, "n_battery"})
    assert len(kept.api.told) == told + 1, "none was set up again"
