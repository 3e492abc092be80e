"""Attacks by who a leaf says it is."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from nats.errors import Error as NatsError

from backhaul_codec.protocol.credentials import parse_seed
from backhaul_codec.protocol.identity import leaf_name
from backhaul_hub.access.rules import vehicle_rights, vehicle_tags
from backhaul_hub.nats import jwt as nats_jwt
from backhaul_hub.nats.jwt import Account, Rights, account_jwt
from backhaul_hub.nats.nkey import new_key
from tests.support.rig.patient import PatientClient

from .attack import attack
from .facts import CANARY, HONEST, STOLEN
from .weaknesses import (
    ANY_PORT,
    EVERLASTING,
    FOREIGN_KEY,
    FOREIGN_SIGNER,
    FORGETFUL,
    GUESSABLE_TOKENS,
    ONE_WIDE_ACCOUNT,
)

if TYPE_CHECKING:
    from backhaul_codec.protocol.identity import Identity

    from .ground import Ground
    from .leaf_client import RawLeaf

_NOW_S = 1_700_000_000


async def _tried(leaf: RawLeaf, how: str) -> list[str]:
    await leaf.open()
    return [f"logged in {how}"] if await leaf.logged_in() else []


def _signed(identity: Identity, signer: Any, account: str, **more: Any) -> Identity:
    """Return an identity whose JWT somebody else has signed for it."""
    public_key = parse_seed(identity.seed).public_key
    tags = vehicle_tags(identity.token, [])
    jwt = nats_jwt.user_jwt(
        HONEST, public_key, signer, account, now_s=_NOW_S, **{"tags": tags, **more}
    )
    return replace(identity, jwt=jwt)


@attack(FOREIGN_SIGNER, harm="logged in by a foreign signing key")
async def signed_by_a_foreign_key(ground: Ground) -> list[str]:
    foreign = _signed(ground.stolen, FOREIGN_KEY, ground.account("FLEET"))
    return await _tried(ground.leaf(foreign), "by a foreign signing key")


@attack()
async def signed_by_an_operator_and_account_of_its_own(ground: Ground) -> list[str]:
    operator, account = new_key("operator"), new_key("account")
    assert account_jwt(Account("HUB", jetstream=True), account.public, operator, {}, now_s=_NOW_S)
    own = _signed(ground.stolen, account, account.public, rights=Rights())
    same_name = _signed(ground.stolen, account, ground.account("HUB"), rights=Rights())
    return [
        *await _tried(ground.leaf(own), "by an account of its own"),
        *await _tried(ground.leaf(same_name), "by a key that says it is the hub's"),
    ]


@attack()
async def a_jwt_with_other_rights_in_it(ground: Ground) -> list[str]:
    head, body, signature = ground.stolen.jwt.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    found = []
    for change in (
        {"name": HONEST},
        {"nats": claims["nats"] | {"tags": [f"tok:{ground.honest.token}"]}},
        {"nats": claims["nats"] | {"pub": {"allow": [">"]}, "sub": {"allow": [">"]}}},
        {"nats": claims["nats"] | {"issuer_account": ground.account("HUB")}},
    ):
        text = base64.urlsafe_b64encode(json.dumps(claims | change).encode()).rstrip(b"=").decode()
        edited = replace(ground.stolen, jwt=f"{head}.{text}.{signature}")
        none = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"none"}').rstrip(b"=").decode()
        for jwt in (edited.jwt, f"{none}.{text}.", f"{none}.{text}.{signature}"):
            found += await _tried(ground.leaf(replace(edited, jwt=jwt)), f"with {change}")
    return found


@attack()
async def anothers_jwt_without_its_key(ground: Ground) -> list[str]:
    theirs = replace(ground.stolen, jwt=ground.honest.jwt)
    unsigned = ground.leaf(replace(theirs), sig="")
    return [
        *await _tried(ground.leaf(theirs), "by another's JWT and its own key"),
        *await _tried(unsigned, "by another's JWT and no signature"),
        *await _tried(ground.leaf(user=HONEST, jwt="", sig=""), "by a name alone"),
    ]


@attack()
async def a_signature_of_another_connection(ground: Ground) -> list[str]:
    leaf = await ground.leaf().open()
    caught = parse_seed(ground.stolen.seed).sign(leaf.info["nonce"])
    return await _tried(ground.leaf(sig=caught), "by a signature that was used before")


@attack(FORGETFUL, harm="logged in by a revoked key")
async def a_revoked_key(ground: Ground) -> list[str]:
    return await _tried(ground.leaf(ground.revoked), "by a revoked key")


@attack(EVERLASTING, harm="logged in by an expired JWT")
async def an_expired_jwt(ground: Ground) -> list[str]:
    expired = _signed(
        ground.stolen, ground.keys.vehicles, ground.account("FLEET"), expires_s=_NOW_S + 60
    )
    return await _tried(ground.leaf(expired), "by an expired JWT")


@attack()
async def rights_of_its_own_beside_the_template(ground: Ground) -> list[str]:
    """Not even who has the vehicles' signing key gives a vehicle more than the template."""
    wide = _signed(
        *(ground.stolen, ground.keys.vehicles, ground.account("FLEET")), rights=vehicle_rights()
    )
    return await _tried(ground.leaf(wide), "with rights of its own")


@attack(ANY_PORT, harm="logged in as a client")
async def a_vehicle_on_the_client_port(ground: Ground) -> list[str]:
    key = parse_seed(ground.stolen.seed)
    client = PatientClient()
    try:
        await client.connect(
            ground.hub.addresses(),
            user_jwt_cb=lambda: ground.stolen.jwt.encode(),
            signature_cb=lambda nonce: key.sign(nonce).encode(),
            allow_reconnect=False,
            error_cb=_ignore,
            connect_timeout=60,
        )
    except NatsError:
        return []
    else:
        return ["logged in as a client"]
    finally:
        await client.close()


@attack(GUESSABLE_TOKENS, harm="honest vehicle's link")
async def anothers_server_name(ground: Ground) -> None:
    for name in (leaf_name(HONEST, f"{2:024x}"), HONEST, f"{HONEST}-"):
        await (await ground.leaf(name=name).open()).flush()


@attack(ONE_WIDE_ACCOUNT, harm="stream CANARY")
async def every_claim_that_connect_can_make(ground: Ground) -> list[str]:
    found = []
    for claims in (
        {"is_hub": True},
        {"is_hub": True, "domain": "hub"},
        {"domain": "hub"},
        {"domain": HONEST, "name": HONEST},
        {"cluster": "hub", "name": "hub"},
        {"remote_account": "HUB"},
        {"remote_account": ground.account("SYS")},
        {"isolate": True, "deny_pub": [">"]},
        {"server_id": "hub", "protocol": 99, "version": "99.0.0"},
        {"nkey": ground.account("HUB"), "auth_token": "x"},
        {"user": "control", "pass": "control", "account": "HUB", "new_account": True},
        {"lang": "go", "gateway": "hub"},
    ):
        leaf = await ground.leaf(**claims).open()
        if leaf.info.get("remote_account") not in (None, ground.account("FLEET")):
            found.append(f"in account {leaf.info['remote_account']}")
        await leaf.listen("dn.>", ">")
        await leaf.publish(f"$JS.hub.API.STREAM.DELETE.{CANARY}")
        await leaf.publish(f"$JS.API.STREAM.DELETE.{CANARY}")
        await leaf.flush()
    return found


@attack()
async def words_before_a_login(ground: Ground) -> None:
    for line in (b"LS+ dn.>\r\n", b"LMSG clk.VID-002 2\r\n{}\r\n", b"PING\r\n"):
        leaf = ground.leaf(jwt="", user=STOLEN)
        leaf.first = line
        await leaf.open()
        await leaf.flush()


async def _ignore(error: Exception) -> None:
    """Do nothing about an error that is expected."""
