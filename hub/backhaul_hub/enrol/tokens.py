"""Making one-time tokens: the work behind `backhaul-hub enrol`.

Needs hub.db and keys alone: neither server nor control plane has to run for a token to be made.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from backhaul_codec.device_token import new_device_token
from backhaul_codec.protocol.enrolment import Token, write_token
from backhaul_codec.protocol.identity import LinkCapacity
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.access.rules import asking_rights
from backhaul_hub.config import HubConfig
from backhaul_hub.db.devices import read_devices, require_free
from backhaul_hub.db.store import Registry
from backhaul_hub.device import check_device_id
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.enrol.rules import Enrolment
from backhaul_hub.errors import ConfigError, RegistryError
from backhaul_hub.lane_names import check_nodes
from backhaul_hub.private_files import alone_in
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
    directory: Path,
    config: HubConfig,
    clock: Clock,
    device_id: str,
    settings: DeviceSettings,
    expires_s: float,
) -> MadeToken:
    """Make a token; those that nobody has used yet of the same device are void from now on.

    Raises:
        RegistryError: the id is none, or of a device that is enrolled and not revoked.
        ConfigError: a node cannot have streams of its own, fleet.leaf_url is no leaf address, or a
            key or file is missing.
    """
    check_device_id(device_id)
    keys, now_ns = read_keys(directory), clock.now_ns()
    documents = Documents(directory, config, keys)
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
    try:
        with alone_in(directory):
            async with await Registry.open(directory / "hub.db") as registry:
                await _store(registry, enrolment)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error
    return MadeToken(enrolment, word)


async def _store(registry: Registry, enrolment: Enrolment) -> None:
    await require_free(registry, enrolment.device)
    known = (await read_devices(registry)).get(enrolment.device)
    if known is not None and not known.revoked_ns:
        raise RegistryError(
            f"{enrolment.device} is enrolled already",
            hint=f"backhaul-hub rotate {enrolment.device} gives it another key; if its disk or key is"
            f" lost, first: backhaul-hub revoke {enrolment.device}",
        )
    await registry.write([enrolment_rows.forget(enrolment.made_ns), *enrolment_rows.add(enrolment)])
