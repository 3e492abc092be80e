"""Attacks by who has a token to enrol with, and no vehicle yet: account ENROL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from backhaul_codec.protocol.credentials import parse_seed
from backhaul_codec.protocol.enrolment import (
    answer_prefix,
    read_answer,
    request_subject,
    write_request,
)
from backhaul_codec.protocol.identity import Identity
from backhaul_hub.access.rules import asking_rights
from backhaul_hub.nats import jwt as nats_jwt
from backhaul_hub.nats.nkey import new_key

from .attack import attack
from .facts import CANARY, HONEST, NOBODYS
from .leaf_client import forged
from .weaknesses import ASK_ANYTHING, BELIEVE_SUBJECTS, EVERLASTING

if TYPE_CHECKING:
    from .ground import Ground

_NOW_S = 1_700_000_000


def _key() -> str:
    return new_key("user").seed


@attack(ASK_ANYTHING, harm=f"hub.db device ('{NOBODYS}'")
async def enrolling_on_a_token_of_another(ground: Ground) -> None:
    mine, theirs = ground.tokens
    leaf = await ground.leaf(mine).open()
    await leaf.listen(f"{answer_prefix(mine.token)}.>", f"{answer_prefix(theirs.token)}.>", ">")
    body = write_request(theirs.token, parse_seed(_key()))
    reply = f"{answer_prefix(mine.token)}.x"
    await leaf.publish(request_subject(theirs.token), body, reply=reply)


@attack(BELIEVE_SUBJECTS, harm=f"hub.db device ('{NOBODYS}'")
async def enrolling_with_the_subject_of_anothers_token(ground: Ground) -> None:
    mine, theirs = ground.tokens
    leaf = await ground.leaf(mine).open()
    body = write_request(theirs.token, parse_seed(_key()))
    reply = forged(request_subject(theirs.token))
    await leaf.publish(request_subject(mine.token), body, reply=reply)


@attack()
async def a_token_that_was_used(ground: Ground) -> list[str]:
    used = ground.used_token
    leaf = await ground.leaf(used, domain=used.token).open()
    answer = await leaf.request(
        request_subject(used.token), write_request(used.token, parse_seed(_key()))
    )
    assert answer is not None
    enrolled = isinstance(read_answer(answer.payload, used.device), Identity)
    return ["enrolled a second time"] if enrolled else []


@attack(EVERLASTING, harm="logged in by an expired token")
async def a_token_that_has_expired(ground: Ground) -> list[str]:
    mine, _ = ground.tokens
    key = ground.keys.account("ENROL")
    jwt = nats_jwt.user_jwt(
        *("enrol", parse_seed(mine.seed).public_key, key, key.public),
        now_s=_NOW_S,
        rights=asking_rights(mine.token),
        expires_s=_NOW_S + 60,
    )
    leaf = await ground.leaf(replace(mine, jwt=jwt)).open()
    return ["logged in by an expired token"] if await leaf.logged_in() else []


@attack()
async def a_token_on_all_that_is_not_its_own(ground: Ground) -> None:
    mine, _ = ground.tokens
    own = request_subject(mine.token)
    for subject, reply in (
        (own, forged(f"$JS.API.STREAM.DELETE.{CANARY}")),
        (own, f"$JS.API.STREAM.DELETE.{CANARY}"),
        (own, f"in.{HONEST}.p.lamp.on.%"),
        (f"$JS.API.STREAM.DELETE.{CANARY}", ""),
        (f"hubapi.CONSUMER.RESET.DOWN_00.{HONEST}-{ground.honest.token}", "x"),
        (f"clk.{HONEST}", ""),
        (f"blob.{HONEST}", ""),
        (f"dlv.{HONEST}.{ground.honest.token}_bulk", ""),
        ("ask.write.fleet", "x"),
    ):
        leaf = await ground.leaf(mine).open()
        await leaf.listen("dn.>", "up.>", ">")
        await leaf.publish(subject, b"", reply=reply)
        await leaf.flush()
