"""Making one-time tokens: the work behind `backhaul-hub enrol`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from backhaul_codec.device_token import new_device_token
from backhaul_codec.protocol.enrolment import Token, write_token
from backhaul_codec.protocol.identity import LinkCapacity
from backhaul_codec.state.point_text import utc
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import new_login
from backhaul_hub.access.rules import asking_rights
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices, require_free
from backhaul_hub.db.store import Registry
from backhaul_hub.device import check_device_id
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.enrol.rules import Enrolment
from backhaul_hub.errors import RegistryError
from backhaul_hub.lane_names import check_nodes
from backhaul_runtime.clock import Clock

EXPIRES_S_MAX = 30 * 86_400.0
_NS_PER_S = 1_000_000_000


class TokenSettings(msgspec.Struct, frozen=True):
    """A token's row, with the facts of the vehicle to come."""

    link: LinkCapacity
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A new token: its row, and the word for the vehicle, which is kept nowhere here."""

    enrolment: Enrolment
    word: str


async def make_token(
    registry: Registry,
    documents: Documents,
    keys: HubKeys,
    clock: Clock,
    device_id: str,
    settings: DeviceSettings,
    expires_s: float,
) -> MadeToken:
    """Make a token; those that nobody has used yet of the same device are void from now on.

    Raises:
        RegistryError: the id is none, or of a device that is enrolled and not revoked.
        ConfigError: a node cannot have streams of its own, or fleet.leaf_url is no leaf address.
    """
    check_device_id(device_id)
    now_ns = clock.now_ns()
    wanted = TokenSettings(
        LinkCapacity(settings.link_mode, settings.link_kbit_s), check_nodes(settings.nodes)
    )
    expires_ns = now_ns + round(expires_s * _NS_PER_S)
    enrolment = Enrolment(
        id=secrets.token_hex(12),
        device=device_id,
        device_token=new_device_token(secrets.choice),
        made_ns=now_ns,
        expires_ns=expires_ns,
        settings=msgspec.json.encode(wanted).decode(),
    )
    login = new_login(
        keys,
        f"enrol {device_id}",
        "ENROL",
        now_s=now_ns // _NS_PER_S,
        rights=asking_rights(enrolment.id),
        expires_s=expires_ns // _NS_PER_S,
    )
    word = write_token(
        Token(
            id=enrolment.id,
            device=device_id,
            leaf_urls=documents.leaf_urls(),
            ca=documents.ca(),
            jwt=login.jwt,
            seed=login.seed,
            expires_s=login.expires_s,
        )
    )
    await registry.write_decided(lambda: _stored(registry, enrolment))
    return MadeToken(enrolment, word)


def described(token: Enrolment, now_ns: int) -> dict[str, Any]:
    """Return the public facts of a token: none that lets anybody in, or is in a subject."""
    ended_ns = token.voided_ns or token.used_ns
    return {
        "device": token.device,
        "id": token.id,
        "state": token.state(now_ns),
        "made": utc(token.made_ns),
        "expires": utc(token.expires_ns),
        "ended": utc(ended_ns) if ended_ns else "",
        "why": token.why_voided,
    }


async def _stored(registry: Registry, enrolment: Enrolment) -> tuple[Sequence[RowChange], None]:
    """Return the statements that store a token. Raises: RegistryError: its device is none, or enrolled."""
    await require_free(registry, enrolment.device)
    known = (await read_devices(registry)).get(enrolment.device)
    if known is not None and not known.revoked_ns:
        raise RegistryError(
            f"{enrolment.device} is enrolled already",
            hint=f"backhaul-hub rotate {enrolment.device} gives it another key; if its disk or key is"
            f" lost, first: backhaul-hub revoke {enrolment.device}",
        )
    return [enrolment_rows.forget(enrolment.made_ns), *enrolment_rows.add(enrolment)], None
