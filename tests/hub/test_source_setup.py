"""What a nats-server does with a source that is renewed while it is being set up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.device import Device
from backhaul_hub.links.sources import Place, SourcePlan, apply_sources, lane_source, untouched_s
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.shards import up_name
from tests.support.nats_server import NatsServer
from tests.support.rig import patient
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats

DEVICE = Device("VID-001", "ab12", "", 0)
PLACE = Place("VID-001", "bulk")
CONSUMER = lane_source(DEVICE, "bulk")["consumer"]


@pytest.mark.parametrize("again", [SourcePlan.kicked, SourcePlan.connected], ids=["kicked", "came"])
async def test_one_subscription_is_left_whatever_was_under_way(
    tmp_path: Path, again: Callable[[SourcePlan, Place], None]
) -> None:
    """With two of them, where one is nobody's, a lane stands still from its next reconnect on."""
    leafs, monitor = free_port(), free_port()
    listen = f'leafnodes {{ listen: "127.0.0.1:{leafs}" }}\nhttp: "127.0.0.1:{monitor}"'
    dial = f'leafnodes {{ remotes: [{{ url: "nats-leaf://127.0.0.1:{leafs}" }}] }}'
    hub = NatsServer(tmp_path / "hub", domain="hub", extra=listen)
    leaf = NatsServer(tmp_path / "leaf", extra=dial)
    asked: list[str] = []

    def listeners() -> list[dict[str, Any]]:
        ask = f"http://127.0.0.1:{monitor}/subsz?subs=1&test={CONSUMER['deliver_subject']}"
        with urllib.request.urlopen(ask, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer).get("subscriptions_list", [])
        return found

    try:
        hub.start()
        leaf.start()
        at_hub, at_leaf = await patient.connect(hub.url), await patient.connect(leaf.url)
        api = JetStreamApi(at_hub)

        async def hear(message: Any) -> None:
            asked.append(message.subject)

        await at_hub.subscribe("$JS.VID-001.API.CONSUMER.RESET.>", cb=hear)
        await api.request(f"STREAM.CREATE.{up_name(0)}", {"name": up_name(0), "subjects": ["up.>"]})
        plan = SourcePlan()
        plan.connected(PLACE)
        await bring_in_line(plan, api)
        await until(lambda: len(listeners()) == 1, "the server listens for the consumer to appear")
        await make_out(at_leaf)
        await until(lambda: any(each["msgs"] for each in listeners()), "a heartbeat came")
        # It asks again within 200 ms, and gets no answer before the source was renewed.
        before = len(asked)
        os.kill(leaf.pid, signal.SIGSTOP)
        await until(lambda: len(asked) > before, "it asks again")
        again(plan, PLACE)
        await bring_in_line(plan, api)
        await until(lambda: len(asked) > before + 1, "it asks once more")
        os.kill(leaf.pid, signal.SIGCONT)
        await until(lambda: len(listeners()) > 0, "the source is set up")
        for number in range(10):
            await at_leaf.jetstream().publish("p.battery.soc", b"%d" % number)
        await all_there(api, 10)
        assert len(listeners()) == 1
        await at_hub.close()
        await at_leaf.close()
    finally:
        leaf.kill()  # it may stand still
        hub.stop()


async def bring_in_line(plan: SourcePlan, api: JetStreamApi) -> None:
    """Apply what the plan says until the stream sources what is wanted, with the waits it asks for."""
    clock = asyncio.get_running_loop()
    while True:
        while (target := plan.next_update(clock.time())) is not None:
            asked_s = clock.time()
            for source in await apply_sources(api, up_name(0), {DEVICE.id: DEVICE}, target):
                plan.established(PLACE, asked_s, asked_s + untouched_s(source, kicked=False))
            plan.succeeded(target, clock.time())
        again_s = plan.look_again_s()
        if again_s is None:
            return
        await asyncio.sleep(max(0.0, again_s - clock.time()))


async def all_there(api: JetStreamApi, messages: int) -> None:
    """Wait until the hub's stream has so many."""
    async with asyncio.timeout(120):
        while True:
            info = await api.request(f"STREAM.INFO.{up_name(0)}")
            if info["state"]["messages"] == messages:
                return
            await asyncio.sleep(0.1)


async def make_out(client: Client) -> None:
    """Make a lane's stream and its durable, as an agent does at its first start."""
    api = JetStreamApi(client)
    stream = {"name": "OUT_bulk", "subjects": ["p.>"], "first_seq": 2}
    await api.request("STREAM.CREATE.OUT_bulk", stream)
    durable = {
        "durable_name": CONSUMER["name"],
        "deliver_subject": CONSUMER["deliver_subject"],
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": 1_000_000_000,
        "max_ack_pending": 100,
    }
    await api.request(
        f"CONSUMER.DURABLE.CREATE.OUT_bulk.{CONSUMER['name']}",
        {"stream_name": "OUT_bulk", "config": durable},
    )
