"""Asking the hub for the time over the link: who may ask, who hears, where answers go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.nats.rate_limit import REFILL_S

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from tests.support.rig.parts import DeviceRig

    from .conftest import World

pytestmark = [pytest.mark.nats]


TRIAL = -100


def answers_of(rig: DeviceRig) -> str:
    device = tomllib.loads(rig.agent_toml.read_text())["device"]
    return f"clkr.{device['id']}.{device['token']}"


async def test_a_device_asks_as_itself_and_hears_its_own_answers_only(world: World) -> None:
    a, _ = await world.vehicle("VID-A")
    b, _ = await world.vehicle("VID-B")
    leaf_a, leaf_b = [await world.leaf_client(rig) for rig in (a, b)]
    hub = await world.hub_client()
    heard: dict[str, list[tuple[str, int]]] = {"a": [], "b": [], "asked": [], "abused": []}
    news = asyncio.Event()

    def into(name: str) -> object:
        async def note(message: Msg) -> None:
            # The agents ask too; only this test's questions have a negative t1.
            if (found := re.match(rb'{"t1": ?(-\d+)', message.data)) is not None:
                heard[name].append((message.subject, int(found[1])))
                news.set()

        return note

    async def until(name: str, what: tuple[str, int]) -> None:
        async with asyncio.timeout(60):
            while what not in heard[name]:
                news.clear()
                await news.wait()

    for subject in ("clk.>", "clkr.>", answers_of(a), answers_of(b)):
        await leaf_a.subscribe(subject, cb=into("a"))  # type: ignore[arg-type]
    await leaf_b.subscribe(answers_of(b), cb=into("b"))  # type: ignore[arg-type]
    await hub.subscribe("clk.*", cb=into("asked"))  # type: ignore[arg-type]
    # A reply subject of the hub's own, one of another device's, and one in the JetStream API.
    hostile = ["hub.reload", answers_of(b), "in.VID-B.s.watermark.live", "$JS.API.STREAM.LIST"]
    for subject in ("hub.>", "in.>", "$JS.API.STREAM.LIST"):
        await hub.subscribe(subject, cb=into("abused"))  # type: ignore[arg-type]
    await asyncio.gather(leaf_a.flush(), leaf_b.flush(), hub.flush())
    for leaf, rig in ((leaf_a, a), (leaf_b, b)):
        # Interest travels over the links in its own time: ask until an answer is heard, no more often
        # than the hub answers for ever.
        name = rig.device[-1].lower()
        answer = (answers_of(rig), TRIAL)
        while answer not in heard[name]:
            await leaf.publish(f"clk.{rig.device}", json.dumps({"t1": TRIAL}).encode())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * REFILL_S):
                    await until(name, answer)  # not the news that it was asked

    await leaf_a.publish("clk.VID-B", b'{"t1": -1}')
    for number, reply in enumerate(["hub.abused", *hostile], 2):
        await leaf_a.publish("clk.VID-A", json.dumps({"t1": -number}).encode(), reply=reply)
    await leaf_a.flush()
    await until("a", (answers_of(a), -6))  # the last one: what came before has had its time
    # B is served as well, so silence about -1 is no accident.
    await leaf_b.publish("clk.VID-B", b'{"t1": -7}')
    await until("b", (answers_of(b), -7))
    await leaf_a.publish("clk.VID-A", b'{"t1": -8}')
    await until("a", (answers_of(a), -8))  # had B's answer come here, it came before this one

    for asked_last in (("clk.VID-B", -7), ("clk.VID-A", -8)):
        await until("asked", asked_last)  # where they are answered is another connection
    for name, seen in heard.items():
        heard[name] = [each for each in seen if each[1] != TRIAL]
    asked = [("clk.VID-A", -number) for number in (2, 3, 4, 5, 6, 8)]
    assert sorted(heard["asked"]) == sorted([*asked, ("clk.VID-B", -7)])
    assert heard["b"] == [(answers_of(b), -7)], "nothing A asked was answered to B"
    assert heard["abused"] == []
    at_a = [each for each in heard["a"] if each[0].startswith("clkr.")]
    assert set(at_a) == {(answers_of(a), -number) for number in (2, 3, 4, 5, 6, 8)}
