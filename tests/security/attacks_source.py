"""Attacks by a stolen vehicle that says it is the stream which the hub sources."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from backhaul_codec import Point, encode_frame
from backhaul_hub.streams.streams import SOURCED_ONLY
from tests.support.waiting import until

from .attack import attack
from .facts import CANARY, HONEST, LAMP, STOLEN
from .leaf_client import forged
from .weaknesses import MESSAGE_IDS, ROLLUPS, SUBJECTS_BY_THE_DEVICE, UP_IN_HUB

if TYPE_CHECKING:
    from .ground import Ground

_STORED_S_MAX = 60.0
_ASKS_TO_PUSH = b'{"t1": 1, "push": {"epoch": 9, "lanes": {"bulk": 1000000}}}'
# By which a stream would do something else than store a message.
_HEADERS = (
    "Nats-Rollup: sub",
    "Nats-Expected-Last-Sequence: 1",
    "Nats-Expected-Stream: UP_00",
    "Nats-TTL: 1s",
    f"Nats-Schedule: @every 1s\r\nNats-Schedule-Target: up.{HONEST}.f.lamp",
    "Nats-Batch-Id: x\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1",
    "Nats-Incr: 1",
    f"Nats-Stream-Source: PUSH 1 > > u.{HONEST}.x.f.lamp",
)
_FLOW_CONTROL = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
# As what account UP, or a client of account HUB, might know JetStream's API.
_APIS = ("$JS.API", "$JS.hub.API", "upapi", "hubapi", "jobsapi", "dictapi", "*")


@attack(SUBJECTS_BY_THE_DEVICE, harm="messages UP_00 up.VID-002.f.forged")
async def a_source_that_names_anothers_subjects(ground: Ground) -> None:
    source = await ground.source()
    body = encode_frame([Point("gps", "speed", 1, 1.0)], epoch=9, seq=1)
    for subject in (f"up.{HONEST}.f.forged", f"in.{HONEST}.p.lamp.on.%", f"canary.{HONEST}"):
        await source.deliver(body, subject=subject)


@attack(MESSAGE_IDS, harm="honest work")
async def message_ids_that_another_will_use(ground: Ground) -> None:
    source = await ground.source()
    for number in range(ground.sent, ground.sent + 20):
        headers = f"NATS/1.0\r\nNats-Msg-Id: bulk-{number}\r\n\r\n".encode()
        await source.deliver(b"attack", headers=headers)


@attack(ROLLUPS, harm="messages UP_00 up.VID-002.f.lamp")
async def a_roll_up_of_all(ground: Ground) -> None:
    source = await ground.source()
    await source.deliver(b"attack", headers=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")


@attack(ROLLUPS, harm="messages UP_00 up.VID-002.f.lamp")
async def a_roll_up_of_all_that_is_pushed(ground: Ground) -> None:
    """Its own pushes, with such headers, after it has asked to push: the hub then takes them in."""
    leaf = await ground.leaf().open()
    subject = f"u.{STOLEN}.{ground.stolen.token}.f.gps"
    for _ in range(1200):
        await leaf.publish(f"clk.{STOLEN}", _ASKS_TO_PUSH)
        info = await ground.api.request("STREAM.INFO.RELAY_00")
        if f"u.{STOLEN}." in str(info["config"].get("sources")):
            break
        await asyncio.sleep(0.05)
    for header in (*_HEADERS, "Nats-Rollup: all"):
        headers = f"NATS/1.0\r\n{header}\r\n\r\n".encode()
        await leaf.publish(subject, b"attack", headers=headers)


async def _stored(ground: Ground) -> bool:
    """Tell whether UP holds a message under the subject that nobody publishes on."""
    ask = {"subjects_filter": f"{SOURCED_ONLY}.>"}
    info = await ground.api.request("STREAM.INFO.UP_00", ask)
    return bool(info["state"].get("subjects"))


@attack(UP_IN_HUB, harm="stream CANARY")
async def flow_control_that_is_answered_with_a_delete(ground: Ground) -> None:
    source = await ground.source()
    for api in _APIS:
        for stream in (CANARY, "UP_00"):
            await source.speak(reply=f"{api}.STREAM.DELETE.{stream}", headers=_FLOW_CONTROL)


@attack(UP_IN_HUB, harm="stream CANARY")
async def a_heartbeat_that_is_answered_with_a_delete(ground: Ground) -> None:
    source = await ground.source()
    await source.speak(
        headers=b"NATS/1.0 100 Idle Heartbeat\r\n"
        b"Nats-Consumer-Stalled: $JS.API.STREAM.DELETE.CANARY\r\n\r\n"
    )


@attack(UP_IN_HUB, harm=f"newest of in.{HONEST}")
async def flow_control_that_is_answered_into_anothers_settings(ground: Ground) -> None:
    source = await ground.source()
    for subject in (LAMP, f"dlv.{HONEST}.{ground.honest.token}_bulk", f"up.{HONEST}.f.lamp"):
        await source.speak(reply=subject, headers=_FLOW_CONTROL)


@attack()
async def flow_control_that_is_answered_into_up_itself(ground: Ground) -> None:
    """The one stream that such an answer reaches: it is set aside, and honest work goes on."""
    source = await ground.source()
    for subject in ("$JS.API.DIRECT.GET.UP_00", "updeliver.>", ">", f"{SOURCED_ONLY}.UP_00"):
        await source.speak(reply=subject, headers=_FLOW_CONTROL)
    async with asyncio.timeout(_STORED_S_MAX):
        while not await _stored(ground):  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.01)


@attack()
async def a_reading_that_looks_like_flow_control(ground: Ground) -> None:
    """Of the twin's events, which are sourced from UP: would theirs answer it?"""
    source = await ground.source()
    for body in (b"", b"attack"):
        await source.deliver(body, subject="e.app.x", headers=_FLOW_CONTROL)


@attack()
async def an_answer_with_the_subject_of_a_delete(ground: Ground) -> None:
    source = await ground.source()
    source.reply, before = forged(f"$JS.API.STREAM.DELETE.{CANARY}"), source.resets
    await source.skip()
    await until(lambda: source.resets > before)
    source.reply = ""
