"""A stolen vehicle that sends valid frames of a kilobyte with a quarter of a million points each."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from tests.support.bombs import points_bomb, text_bomb
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats
HONEST, STOLEN = "VID-001", "VID-666"
EVENTS, FRAMES = 20, 60


async def ask(client: Client, subject: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((await client.request(subject, b"", timeout=30)).data)
    return answer


async def device(hub: Client, name: str) -> dict[str, Any]:
    return next(
        each for each in (await ask(hub, "hub.devices"))["devices"] if each["device"] == name
    )


async def test_who_sends_frames_that_expand_is_kept_out_and_named(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        rig = HubRig(tmp_path / "hub", watermark_interval_s=0.2)
        await rig.init()
        stack.push_async_callback(rig.stop)
        await rig.start()
        vehicles = {}
        for name in (HONEST, STOLEN):
            vehicles[name] = await DeviceRig.add(rig, name, tmp_path / name)
            stack.push_async_callback(vehicles[name].stop)
        # What stands in a lane that its agent pushes is not sourced, and that agent stops.
        toml = vehicles[STOLEN].agent_toml
        toml.write_text(toml.read_text().replace("[link]\n", "[link]\npush = false\n"))
        for vehicle in vehicles.values():
            await vehicle.start()
        hub = await stack.enter_async_context(rig.connection())
        honest = await stack.enter_async_context(connect(vehicles[HONEST].url))
        # Whoever has the vehicle writes what its agent would, with the agent's own key.
        leaf = await stack.enter_async_context(vehicles[STOLEN].connection())
        status = await ask(leaf, "agent.status")
        await vehicles[STOLEN].agent.stop()
        first = status["lanes"]["bulk"]["last_seq"] + 1
        for seq in range(first, first + FRAMES):
            bomb = text_bomb if seq % 4 == 0 else points_bomb
            await leaf.jetstream().publish("f.battery", bomb(seq, epoch=status["epoch"]))
        for number in range(EVENTS):
            await honest.event(f"beside-{number}")

        async def named() -> dict[str, Any] | None:
            rig.control.assert_alive()
            shown = (await ask(hub, "hub.status"))["conditions"]
            return next((each for each in shown if each["code"] == "frames-expand"), None)

        while (found := await named()) is None:
            pass
        assert found["device"] == STOLEN
        assert "backhaul-hub revoke" in found["hint"]
        assert "kept out for" in found["detail"]
        while (said := await device(hub, HONEST))["lanes"]["live"]["watermark"] < EVENTS:
            rig.control.assert_alive()
        assert said["link"]["up"], "nobody else is kept out"
        held = (await device(hub, STOLEN))["lanes"]["bulk"]
        assert held["gaps"] == []
        assert (await ask(hub, "hub.devices"))["streams"][0]["quarantined"] == 0, "all are valid"
        await until(lambda: cut(rig) == {STOLEN}, "the hub has heard that it was cut, and no other")


def cut(rig: HubRig) -> set[str]:
    """Return whose links have ended, as the hub's log says."""
    said = [json.loads(line) for line in rig.control.logged().rpartition(b"\n")[0].splitlines()]
    return {each["device"] for each in said if each["event"] == "leaf_disconnected"}
