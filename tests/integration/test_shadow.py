"""The shadow with real servers, a real vehicle, its link cut, the command line, a stock client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.errors import KeyNotFoundError, NotFoundError

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from tests.support.rig.parts import RigError, program, run_to_end

from .examples import DEADLINE_S, Examples, line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.js.kv import KeyValue

    from .conftest import World

pytestmark = [pytest.mark.nats]
PREFIX = "fleet.prod.veh.VID-001"
EXAMPLES = Examples("shadow.md")


async def hub(world: World, *arguments: str) -> str:
    """Run `backhaul-hub` against this world's hub."""
    return await run_to_end(
        [program("backhaul-hub"), *arguments, "--dir", str(world.hub.directory)]
    )


@asynccontextmanager
async def the_bucket(world: World) -> AsyncIterator[KeyValue]:
    client = await world.hub_client()
    yield await client.jetstream().key_value("TWIN_SHADOW")


async def until(
    kv: KeyValue, part: str, condition: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait until a document is as it should be."""
    found: dict[str, Any] = {}
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (found and condition(found)):
                await asyncio.sleep(0.05)
                try:
                    found = json.loads((await kv.get(f"{PREFIX}.{part}")).value or b"")
                except KeyNotFoundError:
                    continue
    except TimeoutError:
        pytest.fail(f"never came true: {json.dumps(found, indent=1)}")
    return found


def test_the_examples_import_nothing_of_this_project() -> None:
    assert EXAMPLES.texts.keys() == {"desire.py"}
    assert not any(name.startswith("backhaul") for name in EXAMPLES.imported())


async def test_a_stock_client_desires_and_sees_it_reported(world: World) -> None:
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent:
        vehicle = ConfigClient(agent)
        await vehicle.set("gps", {"rate": 1.0})
        async with the_bucket(world) as kv:
            await until(kv, "reported", lambda said: said["fields"] == {"gps.rate": 1.0})
            await relay.cut()
            await world.until(lambda report: not report["devices"][0]["link"]["up"])
            async with EXAMPLES.running(world, "desire.py") as process:
                assert await line(process) == "desired"
                heard = await line(process)
                while heard != "meta on its way":
                    assert heard == "reported 1.0", "the vehicle cannot have heard of it"
                    heard = await line(process)
                await relay.heal()
                said = set()
                while heard := await line(process):
                    said.add(heard)
            assert {"reported 5.0", "meta done"} <= said
        assert [point["value"] for point in await vehicle.get("gps", "rate")] == [5.0]
    shown = await hub(world, "shadow", "VID-001")
    assert "gps.rate" in shown
    assert "fleet.prod" not in shown


@pytest.mark.parametrize("vehicle_later", [True, False])
async def test_both_ends_edit_the_same_field_while_apart(world: World, vehicle_later: bool) -> None:
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent, the_bucket(world) as kv:
        vehicle = ConfigClient(agent)
        await vehicle.set("gps", {"rate": 1.0})
        await hub(world, "shadow", "set", "VID-001", "gps.mode=eco")
        await until(kv, "meta", lambda meta: meta["desired"] and not meta["delta"])
        await relay.cut()
        await world.until(lambda report: not report["devices"][0]["link"]["up"])

        async def desire() -> None:
            await hub(world, "shadow", "set", "VID-001", "gps.rate=5", "--who", "anna")

        if vehicle_later:
            await desire()
            desired_ns = time.time_ns()
            while (await agent.status())["clock"]["time_ns"] <= desired_ns:
                pass  # the vehicle's clock is not exact
            await vehicle.set("gps", {"rate": 7.0})
        else:
            await vehicle.set("gps", {"rate": 7.0})
            await desire()
        meta = await until(kv, "meta", lambda meta: "gps.rate" in meta["delta"])
        assert meta["delta"]["gps.rate"]["why"] == "on its way"
        assert meta["delta"]["gps.rate"]["reported"] == 1.0
        await relay.heal()
        winner = 7.0 if vehicle_later else 5.0
        await until(kv, "reported", lambda said: said["fields"]["gps.rate"] == winner)
        meta = await until(kv, "meta", lambda meta: meta["in_sync"] and meta["conflicts"])
        assert [each["field"] for each in meta["conflicts"]] == ["gps.rate"]
        assert [point["value"] for point in await vehicle.get("gps", "rate")] == [winner]
        if not vehicle_later:
            assert meta["delta"] == {}
            assert meta["fields"]["gps.rate"]["origin"] == "hub:anna"
            return
        rate = meta["delta"]["gps.rate"]
        assert (rate["why"], rate["by"], rate["desired"]) == ("overridden", "vehicle", 5.0)
        assert "overridden by vehicle" in await hub(world, "shadow", "VID-001")
        # It is not fought over, whatever starts anew and whatever else is desired.
        await world.hub.control.stop(signal.SIGKILL)
        await world.hub.start_control()
        await hub(world, "shadow", "set", "VID-001", "gps.mode=fast")
        await until(kv, "reported", lambda said: said["fields"]["gps.mode"] == "fast")
        assert [point["value"] for point in await vehicle.get("gps", "rate")] == [7.0]
        # Who insists writes the point.
        await hub(world, "set", "VID-001", "gps.rate=5")
        await until(kv, "meta", lambda meta: not meta["delta"])


async def test_a_bucket_that_somebody_deletes_is_filled_again(world: World) -> None:
    await world.vehicle()
    await hub(world, "shadow", "set", "VID-001", "gps.rate=5")
    client = await world.hub_client()
    await client.jetstream().delete_stream("KV_TWIN_SHADOW")

    async def made_again() -> bool:
        with contextlib.suppress(NotFoundError):
            return bool(await client.jetstream().stream_info("KV_TWIN_SHADOW"))
        return False

    async with asyncio.timeout(DEADLINE_S):
        while not await made_again():  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.1)
    async with the_bucket(world) as kv:
        assert await until(kv, "desired", bool) == {"gps.rate": 5.0}
        await until(kv, "reported", lambda said: said["fields"] == {"gps.rate": 5.0})
        await until(kv, "meta", lambda meta: meta["desired"] is not None)


async def test_the_command_line(world: World) -> None:
    await world.vehicle()
    with pytest.raises(RigError, match="is no device, and no key"):
        await hub(world, "shadow", "no.device")
    with pytest.raises(RigError, match="does not fit dtype int64"):
        await hub(world, "shadow", "set", "VID-001", "gps.x:int64=true")
    with pytest.raises(RigError, match="there is no device VID-009"):
        await hub(world, "shadow", "set", "VID-009", "gps.rate=5")
    await hub(world, "shadow", "set", "VID-001", "gps.rate=5", "gps.mode=eco", "hmi.n:int64=3")
    answer = json.loads(
        await hub(
            world, "shadow", "set", "VID-001", "--delete", "hmi.n", "--forget", "gps.mode", "--json"
        )
    )
    async with the_bucket(world) as kv:  # the command waits for that, but no more than five seconds
        revision = answer["revision"]
        await until(kv, "meta", lambda meta: (meta["desired"] or {}).get("revision", 0) >= revision)
    key = "fleet/prod/veh/VID-001/desired"
    assert json.loads(await hub(world, "shadow", key)) == {"gps.rate": 5.0, "hmi.n": None}
    shown = json.loads(await hub(world, "shadow", "VID-001", "--json"))
    assert shown["config"]["fields"] == {"gps.mode": "eco", "gps.rate": 5.0}
    history = json.loads(await hub(world, "shadow", key, "--history", "--json"))
    assert [each["revision"] for each in history["desired"]][-1] == answer["revision"]
    assert len(history["desired"]) == 2
    async with the_bucket(world) as kv:
        await kv.put(f"{PREFIX}.desired", b"garbage")
        with pytest.raises(RigError, match="begin anew with --only"):
            await hub(world, "shadow", "set", "VID-001", "gps.rate=6")
        await until(kv, "meta", lambda meta: meta["refused"] is not None)
        await hub(world, "shadow", "set", key, "--only", "gps.rate=6")
        await until(kv, "meta", lambda meta: meta["refused"] is None)
    watching = await asyncio.create_subprocess_exec(
        program("backhaul-hub"), "shadow", "watch", "VID-001", "--dir", str(world.hub.directory),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        heard: set[str] = set()
        while not any("config  gps.rate  6.0" in each for each in heard):
            heard.add(await line(watching))
        await hub(world, "shadow", "set", "VID-001", "gps.rate=7")
        while not any("config  gps.rate  7.0" in each for each in heard):
            heard.add(await line(watching))
        assert any("desired  gps.rate  7" in each for each in heard)
    finally:
        watching.terminate()
        await watching.wait()
    await world.hub.control.stop(signal.SIGKILL)
    answer = json.loads(await hub(world, "shadow", "set", "VID-001", "gps.rate=8", "--json"))
    assert not answer["taken"]
    await world.hub.start_control()
    async with the_bucket(world) as kv:
        await until(kv, "config", lambda said: said["fields"]["gps.rate"] == 8.0)
