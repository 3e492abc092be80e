"""Attacks by a stolen vehicle that says it is the stream which the hub sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec import Point, encode_frame
from tests.support.waiting import until

from .attack import attack
from .facts import CANARY, HONEST
from .leaf_client import forged
from .weaknesses import MESSAGE_IDS, ROLLUPS, SUBJECTS_BY_THE_DEVICE

if TYPE_CHECKING:
    from .ground import Ground

_OPEN = "the server lets a source say where its stream answers: docs/security.md, open"


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


@attack(open=_OPEN)
async def flow_control_that_is_answered_with_a_delete(ground: Ground) -> None:
    source = await ground.source()
    await source.speak(
        reply=f"$JS.API.STREAM.DELETE.{CANARY}",
        headers=b"NATS/1.0 100 FlowControl Request\r\n\r\n",
    )


@attack(open=_OPEN)
async def a_heartbeat_that_is_answered_with_a_delete(ground: Ground) -> None:
    source = await ground.source()
    await source.speak(
        headers=b"NATS/1.0 100 Idle Heartbeat\r\n"
        b"Nats-Consumer-Stalled: $JS.API.STREAM.DELETE.CANARY\r\n\r\n"
    )


@attack(open=_OPEN)
async def flow_control_that_is_answered_into_anothers_settings(ground: Ground) -> None:
    source = await ground.source()
    await source.speak(
        reply=f"in.{HONEST}.p.lamp.on.%", headers=b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    )


@attack()
async def an_answer_with_the_subject_of_a_delete(ground: Ground) -> None:
    source = await ground.source()
    source.reply, before = forged(f"$JS.API.STREAM.DELETE.{CANARY}"), source.resets
    await source.skip()
    await until(lambda: source.resets > before)
    source.reply = ""
