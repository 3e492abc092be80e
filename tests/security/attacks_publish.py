"""Attacks by what a stolen vehicle publishes: subjects, replies and headers."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from backhaul_codec import Point, encode_frame
from backhaul_codec.protocol import blobs
from backhaul_hub.lane_names import DOWN

from .attack import attack
from .facts import CANARY, HONEST, OWN_VALUE, STOLEN
from .ground import MARK
from .leaf_client import forged
from .weaknesses import (
    API_FOR_LEAFS,
    BELIEVE_SUBJECTS,
    GUESSABLE_TOKENS,
    ONE_ACCOUNT,
    ONE_WIDE_ACCOUNT,
    PUBLISH_ANYTHING,
)

if TYPE_CHECKING:
    from .ground import Ground

_DELETE = f"$JS.API.STREAM.DELETE.{CANARY}"
_PREFIXES = (
    "$JS.API",
    "$JS.hub.API",
    "hubapi",
    "jobsapi",
    "dictapi",
    f"$JS.{HONEST}.API",
    "$JS.VID-001.API",
)
# A read of the vehicle's own shadow, where the weakest configuration allows one.
_OWN_READ = f"$JS.hub.API.DIRECT.GET.KV_TWIN_SHADOW.{OWN_VALUE}"


async def _each(
    ground: Ground, *subjects: str, payload: bytes = b"attack", reply: str = ""
) -> None:
    """Publish on each subject over a link of its own: the first refusal ends a link."""
    for subject in subjects:
        leaf = await ground.leaf().open()
        await leaf.publish(subject, payload, reply=reply)
        await leaf.flush()


def _own_reset(ground: Ground) -> str:
    return f"hubapi.CONSUMER.RESET.{DOWN}.{STOLEN}-{ground.stolen.token}"


def _guess() -> str:
    """Return the token that the second device has where tokens are counted."""
    return f"{2:024x}"


@attack(PUBLISH_ANYTHING, harm="messages UP_00 up.VID-002.f.forged")
async def frames_delivered_in_anothers_name(ground: Ground) -> None:
    token = ground.honest.token
    leaf = await ground.leaf().open()
    # Which of its deliveries is next the attacker does not know, and need not.
    for number in range(1, 60):
        reply = (
            f"$JS.ACK.OUT_bulk.{token}.1.{1000 + number}.{number}.1700000000000000000.0@f.forged"
        )
        body = encode_frame([Point("gps", "speed", 1, 1.0)], epoch=9, seq=number)
        await leaf.publish(f"dlv.{HONEST}.{token}_bulk", body, reply=reply)
        # Of those that come together the server drops the rest after one out of turn.
        await leaf.flush()
        await ground.api.request("STREAM.INFO.UP_00")


@attack(GUESSABLE_TOKENS, harm="messages UP_00 up.VID-002.f.pushed")
async def pushes_in_anothers_name(ground: Ground) -> None:
    own = f"u.{STOLEN}.{ground.stolen.token}.f.gps"
    body = encode_frame([Point("gps", "speed", 1, 1.0)], epoch=9, seq=1)
    for token in (_guess(), ground.stolen.token, "x"):
        subject = f"u.{HONEST}.{token}.f.pushed"
        await _each(ground, subject, payload=body)
        await _each(ground, own, payload=body, reply=forged(subject))
        await _each(ground, own, payload=body, reply=forged(f"up.{HONEST}.f.pushed"))


@attack(PUBLISH_ANYTHING, harm=MARK)
async def questions_and_answers_of_others(ground: Ground) -> None:
    token, durable = ground.honest.token, f"{DOWN}.{HONEST}-{ground.honest.token}"
    await _each(
        ground,
        *(f"clk.{HONEST}", f"blob.{HONEST}"),
        *(f"clkr.{HONEST}.{token}", f"blobr.{HONEST}.{token}", f"dn.{HONEST}.{token}"),
        *(f"w.{HONEST}.{token}.c.unlock", f"w.{HONEST}.{token}.s.wake"),
        *(f"$JS.FC.{durable}.abcd", f"$JS.FC.hub.ABC.{durable}.abcd"),
        *(f"$JS.FC.OUT_bulk.{token}.abcd", f"_INBOX_{HONEST}.x"),
        f"$JS.{HONEST}.API.CONSUMER.RESET.OUT_bulk.{token}",
        *(
            "enrol.a",
            "ask.write.VID-002",
            "history.ask",
            "$SYS.REQ.CLAIMS.UPDATE",
            "$SYS.REQ.SERVER.PING",
        ),
        payload=b'{"t1": %s}' % MARK.encode(),
    )


@attack(ONE_WIDE_ACCOUNT, harm="newest of in.VID-002")
async def writes_into_streams_of_the_hub(ground: Ground) -> None:
    await _each(
        ground,
        f"in.{HONEST}.p.lamp.on.%",
        f"up.{HONEST}.f.gps",
        "hub.sourced-only.UP_00",
        f"fleet.prod.veh.{HONEST}.cmd.now",
        f"fleet.prod.veh.{HONEST}.state.lamp.on",
        f"$KV.TWIN_SHADOW.fleet.prod.veh.{HONEST}.desired",
        "$O.TWIN_BLOBS.M.bWFw",
        "quarantine.UP_00.1.1",
        f"canary.{HONEST}",
    )


@attack(ONE_WIDE_ACCOUNT, harm="hub.db person ('mallory'")
async def acts_of_an_operator(ground: Ground) -> None:
    asked: dict[str, dict[str, object]] = {
        "user-add": {"name": "mallory", "group": "fleet", "may": "command"},
        "user-link": {"name": "mallory", "for_s": 3600},
        "enrol": {"device": "VID-666", "expires_s": 3600},
    }
    for service, question in asked.items():
        body = json.dumps(question).encode()
        await _each(ground, f"hub.{service}", payload=body, reply=f"_INBOX_{STOLEN}.x")
        # A question that the hub would pass on, or answer there.
        for way in (f"clk.{STOLEN}", f"blob.{STOLEN}", _own_reset(ground)):
            await _each(ground, way, payload=body, reply=f"hub.{service}")
            await _each(ground, way, payload=body, reply=forged(f"hub.{service}"))


@attack(ONE_WIDE_ACCOUNT, harm="stream CANARY")
async def the_api_under_every_name(ground: Ground) -> None:
    for domain in (STOLEN, HONEST, "hub", ""):
        for prefix in _PREFIXES:
            leaf = await ground.leaf(domain=domain).open()
            await leaf.publish(f"{prefix}.STREAM.DELETE.{CANARY}")
            await leaf.flush()


@attack(ONE_WIDE_ACCOUNT, harm="heard: Heard(subject='_INBOX_VID-001")
async def reads_of_streams_of_the_hub(ground: Ground) -> None:
    for prefix in _PREFIXES:
        for verb, body in (
            (f"STREAM.MSG.GET.{CANARY}", json.dumps({"last_by_subj": f"canary.{HONEST}"})),
            (f"DIRECT.GET.UP_00.up.{HONEST}.f.gps", ""),
        ):
            leaf = await ground.leaf().open()
            await leaf.request(f"{prefix}.{verb}", body.encode(), wait_s=0.1)


@attack(ONE_ACCOUNT, harm="newest of in.VID-002")
async def a_read_answered_into_anothers_commands(ground: Ground) -> None:
    await _each(ground, _OWN_READ, payload=b"", reply=f"in.{HONEST}.p.lamp.on.%")


@attack(ONE_ACCOUNT, harm="stream CANARY")
async def a_read_answered_into_a_delete(ground: Ground) -> None:
    await _each(ground, _OWN_READ, payload=b"", reply=_DELETE)


@attack(ONE_ACCOUNT, harm="commands that wait for an acknowledgement: 1 -> 0")
async def a_forged_acknowledgement(ground: Ground) -> None:
    await _each(ground, f"$JS.ACK.{CANARY}.worker.1.1.1.1700000000000000000.0", payload=b"+ACK")


@attack(API_FOR_LEAFS, harm="stream CANARY")
async def the_reset_with_the_subject_of_a_delete(ground: Ground) -> None:
    await _each(ground, _own_reset(ground), payload=b"", reply=forged(_DELETE))


@attack(BELIEVE_SUBJECTS, harm=MARK)
async def a_question_in_anothers_name(ground: Ground) -> None:
    question = b'{"t1": %s}' % MARK.encode()
    for gateway in ("", "_GR_.abcdef.ghijkl."):
        reply = gateway + forged(f"clk.{HONEST}")
        await _each(ground, f"clk.{STOLEN}", payload=question, reply=reply)


@attack(BELIEVE_SUBJECTS, harm="OBJ_TWIN_BLOBS")
async def an_upload_in_anothers_name(ground: Ground) -> None:
    data = b"attack"
    digest = hashlib.sha256(data).digest()
    for word in (blobs.Offer(1, "map", digest, len(data)), blobs.Write(2, digest, 0, data)):
        body = blobs.encode(word)
        await _each(ground, f"blob.{STOLEN}", payload=body, reply=forged(f"blob.{HONEST}"))


@attack(PUBLISH_ANYTHING, harm="honest work")
async def a_reset_of_anothers_durable(ground: Ground) -> None:
    durable = f"{DOWN}.{HONEST}-{ground.honest.token}"
    await _each(ground, f"hubapi.CONSUMER.RESET.{durable}", payload=b'{"seq": 1000000}', reply="x")


@attack(GUESSABLE_TOKENS, harm="told the honest one: dn.VID-002")
async def an_answer_led_to_where_another_listens(ground: Ground) -> None:
    for subject in (f"dn.{HONEST}.", f"clkr.{HONEST}.", f"blobr.{HONEST}."):
        await _each(ground, _own_reset(ground), payload=b"", reply=subject + _guess())


@attack(PUBLISH_ANYTHING, harm="told the honest one")
async def a_trace_led_to_where_another_listens(ground: Ground) -> None:
    for target in (f"clkr.{HONEST}.{ground.honest.token}", f"dn.{HONEST}.{ground.honest.token}"):
        leaf = await ground.leaf().open()
        headers = f"NATS/1.0\r\nNats-Trace-Dest: {target}\r\n\r\n".encode()
        await leaf.publish(f"clk.{STOLEN}", b"{}", headers=headers)
        await leaf.flush()


@attack(ONE_WIDE_ACCOUNT, harm="stream CANARY")
async def a_request_that_names_another_account(ground: Ground) -> None:
    account = ground.account("HUB")
    headers = f'NATS/1.0\r\nNats-Request-Info: {{"acc":"{account}"}}\r\n\r\n'.encode()
    for prefix in _PREFIXES:
        leaf = await ground.leaf().open()
        await leaf.publish(f"{prefix}.STREAM.DELETE.{CANARY}", headers=headers)
        await leaf.flush()
