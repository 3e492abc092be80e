"""A vehicle whose link is there for visits only, with real servers."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from nats.errors import Error as NatsError

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_agent.config_file import load
from backhaul_agent.errors import LinkSwitchError
from backhaul_agent.metered.link_switch import LinkSwitch
from backhaul_codec import Point
from tests.support.rig.parts import program, run_to_end, wait_for_log
from tests.support.rig.shaped_relay import ShapedRelay

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]


async def status_when(
    world: World, rig: DeviceRig, condition: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Ask the agent until its status fits."""
    client = await world.leaf_client(rig)
    status: dict[str, Any] = {}
    try:
        async with asyncio.timeout(120):
            while True:
                try:
                    answer = await client.request("agent.status", b"", timeout=5)
                except NatsError:
                    continue
                status = json.loads(answer.data)
                if condition(status):
                    return status
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"never came true; the agent's last status: {json.dumps(status, indent=1)}")


def left(visits: int) -> Callable[[dict[str, Any]], bool]:
    """Return a condition: the device is back from this visit, and its link is gone."""
    return lambda status: (
        status["link"]["visits"] >= visits
        and status["link"]["phase"] == "idle"
        and status["link"]["up"] is False
    )


async def open_door(world: World, rig: DeviceRig) -> int:
    """Have something urgent kept, and return how far the live lane is then."""
    async with connect(rig.url) as agent:
        await agent.publish("door", "open", "yes", lane="live")
    status = await status_when(world, rig, lambda _: True)
    last_seq: int = status["lanes"]["live"]["last_seq"]
    return last_seq


async def keep(rig: DeviceRig, first: int, count: int) -> None:
    async with connect(rig.url) as agent:
        points = [Point("battery", "soc", n * 10**9, n / 8) for n in range(first, first + count)]
        await agent.publish_batch("battery", points)


async def test_what_is_urgent_connects_and_takes_along_what_waited(world: World) -> None:
    rig, relay = await world.vehicle_behind(
        ShapedRelay("127.0.0.1", world.hub.leaf_port), link_mode="on-demand", urgent="state"
    )
    await status_when(world, rig, left(1))
    accepted = relay.accepted  # on a busy machine it may have been dialled twice for one visit
    await keep(rig, 1, 250)
    hub = await world.hub_client()
    await hub.jetstream().publish("in.VID-001.c.later", b"written while it was away")
    status = await status_when(world, rig, lambda it: it["lanes"]["bulk"]["appended"] == 1)
    assert left(1)(status)
    assert status["lanes"]["bulk"]["watermark"] == 0
    assert relay.accepted == accepted
    await open_door(world, rig)
    status = await status_when(world, rig, left(2))
    assert status["link"]["visits"] == 2
    assert status["lanes"]["bulk"]["watermark"] == 1
    assert status["link"]["next_visit_s"] is None
    leaf = await world.leaf_client(rig)
    there = await leaf.jetstream().get_last_msg("IN", "c.later")
    assert there.data == b"written while it was away"
    report = await world.until(lambda report: not report["devices"][0]["link"]["up"])
    assert lane(report)["watermark"] == 1


async def test_a_scheduled_visit_takes_along_what_nobody_calls_urgent(world: World) -> None:
    rig, _ = await world.vehicle_behind(
        ShapedRelay("127.0.0.1", world.hub.leaf_port), link_mode="scheduled", schedule_s=10.0
    )
    status = await status_when(world, rig, left(1))
    await keep(rig, 1, 250)
    await status_when(world, rig, lambda it: it["lanes"]["bulk"]["watermark"] == 1)
    status = await status_when(world, rig, left(2))
    # Of a visit that took longer than that, the next is due at once.
    assert status["link"]["next_visit_s"] <= 10.5


async def test_what_the_hub_writes_while_it_is_away_arrives_at_its_next_visit(
    world: World,
) -> None:
    rig, relay = await world.vehicle_behind(
        ShapedRelay("127.0.0.1", world.hub.leaf_port), link_mode="on-demand", urgent="state"
    )
    await status_when(world, rig, left(1))
    accepted = relay.accepted
    await world.until(lambda report: not report["devices"][0]["link"]["up"])
    hub = [program("backhaul-hub"), "set", "VID-001", "battery.limit=90"]
    await run_to_end([*hub, "--dir", str(world.hub.directory)])
    # It is in DOWN, where it waits.
    await world.until(lambda report: report["devices"][0]["heads"]["waiting"] == 0)
    async with connect(rig.url) as agent:
        vehicle = ConfigClient(agent)
        assert await vehicle.get() == []
        assert relay.accepted == accepted
        await agent.publish("door", "open", "yes", lane="live")
        status = await status_when(world, rig, left(2))
        assert status["link"]["visits"] == 2
        values = {(each["node"], each["type"]): each["value"] for each in await vehicle.get()}
        assert values == {("battery", "limit"): 90.0, ("door", "open"): "yes"}
    # What the ends say of it when it has come holds no link: on a busy machine it goes at a later visit.
    for visits in range(3, 10):
        if (await world.report())["devices"][0]["heads"]["in_sync"] is True:
            return
        await open_door(world, rig)
        await status_when(world, rig, left(visits))
    pytest.fail("they were never known to hold the same")


async def test_a_link_is_switched_by_a_signal_to_the_leaf_server(world: World) -> None:
    rig, relay = await world.vehicle_behind(
        ShapedRelay("127.0.0.1", world.hub.leaf_port),
        link_mode="on-demand",
        urgent="state",
        system_nkey="",
        pid_file="leaf.pid",
    )
    pid_file = rig.agent_toml.with_name("leaf.pid")
    status = await status_when(world, rig, lambda it: bool(it["link"]["last_failure"]))
    assert str(pid_file) in status["link"]["last_failure"], "leaf.conf has no pid_file yet"
    leaf_conf = rig.agent_toml.with_name("leaf.conf")
    leaf_conf.write_text(f'{leaf_conf.read_text()}\npid_file: "{pid_file}"\n')
    await rig.leaf.stop()
    await rig.leaf.start()
    await rig.leaf.wait_listening(rig.client_port)
    status = await status_when(world, rig, left(1))
    assert not status["link"]["last_failure"]
    visits, accepted = status["link"]["visits"], relay.accepted
    last_seq = await open_door(world, rig)
    status = await status_when(world, rig, left(visits + 1))
    assert status["lanes"]["live"]["watermark"] >= last_seq
    assert status["link"]["visits"] == visits + 1
    assert relay.accepted > accepted
    assert "disabled: true" in (rig.agent_toml.parent / "link" / "link.conf").read_text()


@pytest.mark.parametrize("phase", ["dialing", "draining", "leaving"])
async def test_an_agent_killed_during_a_visit_makes_it_again_and_leaves(
    world: World, phase: str
) -> None:
    rig, relay = await world.vehicle_behind(
        ShapedRelay("127.0.0.1", world.hub.leaf_port), link_mode="on-demand", urgent="state"
    )
    await status_when(world, rig, left(1))
    if phase == "dialing":
        await relay.cut()
    seen = rig.agent.logged_bytes
    last_seq = await open_door(world, rig)
    # Not its status: a phase may be over between two looks.
    await wait_for_log(rig.agent, f'"phase": "{phase}"', seen)
    await rig.agent.stop(signal.SIGKILL)
    if phase == "dialing":
        await relay.heal()
    await rig.start_agent()
    status = await status_when(world, rig, left(1))
    assert status["lanes"]["live"]["watermark"] >= last_seq
    assert "disabled: true" in (rig.agent_toml.parent / "link" / "link.conf").read_text()


async def test_a_link_that_cannot_be_switched_says_what_to_do(world: World) -> None:
    rig, _ = await world.vehicle_behind(
        ShapedRelay("127.0.0.1", world.hub.leaf_port), link_mode="scheduled"
    )
    config = load(rig.agent_toml)

    def switch(**changed: object) -> LinkSwitch:
        link = msgspec.structs.replace(config.link, **changed)
        return LinkSwitch(msgspec.structs.replace(config, link=link))

    with pytest.raises(LinkSwitchError, match=r"link\.system_nkey of agent\.toml must be the key"):
        await switch(system_nkey=str(rig.agent_toml.with_name("agent.nk"))).set(True)
    blocked = rig.agent_toml.with_name("blocked")
    blocked.write_text("")
    with pytest.raises(LinkSwitchError, match="the right to write in this directory"):
        await switch(file=str(blocked / "link.conf")).set(True)
    with pytest.raises(LinkSwitchError, match=r"link\.pid_file of agent\.toml"):
        await switch(pid_file=str(blocked)).set(True)
    leaf_conf = rig.agent_toml.with_name("leaf.conf")
    leaf_conf.write_text(leaf_conf.read_text() + "\nno_such_setting: 1\n")
    with pytest.raises(LinkSwitchError, match="refused its configuration"):
        await switch().set(False)
