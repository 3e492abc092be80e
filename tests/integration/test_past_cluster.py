"""The past of a series at a hub of three servers: asked at each of them, and while the one dies that has the question in hand."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest

from backhaul_agent.client import connect
from backhaul_codec import Point
from backhaul_codec.protocol.history import PastQuestion
from backhaul_hub.errors import HubError
from backhaul_hub.nats.system_requests import ask_all
from backhaul_hub.people.history import HistoryGate
from tests.support.rig import patient
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import DeviceRig, Part, program, wait_for_log
from tests.support.waiting import until

from .conftest import World
from .people_line import Line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats]

DEVICE = "VID-001"
COUNT = 250
QUESTION = PastQuestion(DEVICE, "gps", "speed", 0, 4 * 10**15)
LOST = "no answer from the server of history"


async def server_of(hub: ClusterRig, connection: str) -> str:
    """Return the name of the server that a connection of this name is at."""
    async with hub.connection("system") as client:
        for answer in await ask_all(client, "CONNZ", len(NAMES)):
            if any(each.get("name") == connection for each in answer["data"]["connections"]):
                return str(answer["server"]["name"])
    raise AssertionError(f"nothing is connected as {connection}")


async def test_history_is_answered_at_each_server_and_though_one_dies_with_the_question(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        world = await World(tmp_path, stack, ClusterRig).start()
        hub = world.hub
        assert isinstance(hub, ClusterRig)
        rig = await DeviceRig.add(hub, DEVICE, tmp_path / DEVICE)
        stack.push_async_callback(rig.stop)
        await rig.start()
        async with connect(rig.url) as agent:
            start_ns = time.time_ns() - COUNT * 10**9
            times_ns = range(start_ns, start_ns + COUNT * 10**9, 10**9)
            await agent.publish_batch("gps", [Point("gps", "speed", at, 1.5) for at in times_ns])
        words = ["--hub-dir", str(hub.directory), "--table-root", str(tmp_path / "tables")]
        command = [program("backhaul-spark"), "serve-history", *words]
        history = Part("history", command, tmp_path / "history.log")
        stack.push_async_callback(history.stop)
        await history.start()
        await wait_for_log(history, "answering")
        await Line(world).add("anna", "fleet", "read")
        for url in hub.addresses():
            creds = str(tmp_path / "anna.creds")
            anna = await patient.connect(url, user_credentials=creds, inbox_prefix="inbox.anna")
            stack.push_async_callback(anna.close)

            async def told(who: patient.PatientClient = anna) -> bool:
                asked = msgspec.json.encode(QUESTION)
                answer = json.loads((await who.request("ask.read.fleet.anna.history", asked)).data)
                return bool(sum(answer.get("n", ())) == COUNT)

            await until(told, f"{url} tells all readings")

        mortal = await server_of(hub, "backhaul-spark history")
        other = next(name for name in NAMES if name != mortal)
        there = {"servers": [f"nats://127.0.0.1:{hub.client_ports[other]}"]}
        asker = await patient.connect(**hub.options() | there)
        stack.push_async_callback(asker.close)
        gate = HistoryGate(asker, wait_s=100.0)
        refusals: list[str] = []

        async def answered() -> bool:
            try:
                answer = json.loads(bytes(await gate.ask(QUESTION)))
            except HubError as error:
                # Without a leader for a moment, or connecting again: it is told so.
                refusals.append(str(error))
                return False
            return bool(sum(answer["n"]) == COUNT)

        # It takes the question, and does no more with it.
        hub.servers[mortal].send(signal.SIGSTOP)
        asking = asyncio.create_task(answered())
        await asyncio.sleep(0)
        await asker.flush()
        await hub.servers[mortal].stop(signal.SIGKILL)
        await asking
        await until(answered, "the two servers that are left have it answered")
        assert not [each for each in refusals if LOST in each]
