"""Logins of one term: the leader acts by them alone, and the next leader shuts them out (ADR 50).

A stream can refuse a message by its sequence; nothing can refuse an account, a kick, a source or a purge by it.
A login that is revoked is cut at every server at once, with all that its process had not sent yet.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import structlog
from nats.aio.client import Client

from backhaul_hub.access.account_names import AccountName
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import new_login
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.config import HubConfig
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import DeposedError, HubError
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.standby.rows import ended, read_terms

log = structlog.get_logger(__name__)

_USERS: dict[str, AccountName] = {"control": "HUB", "system": "SYS"}
_PLACE = "creds/leader"
_AGAIN_S = 0.25
_ANSWER_S = 1.0


def make_logins(
    directory: Path, keys: HubKeys, machine: str, name: str, *, now_s: int
) -> dict[str, str]:
    """Write the logins of a term that may begin; return their public keys, by account.

    `name`: no other term's. Raises: OSError.
    """
    place = directory / _PLACE
    # A former process of this machine finds its own no more, should it go on.
    shutil.rmtree(place, ignore_errors=True)
    private_directory(place / name)
    found: dict[str, str] = {}
    for user, account in _USERS.items():
        login = new_login(keys, f"{user}-{machine}", account, now_s=now_s)
        write_private(place / name / f"{user}.creds", login.text())
        found[account] = login.public_key
    return found


def with_logins(config: HubConfig, directory: Path, name: str) -> HubConfig:
    """Return the settings by which a control plane acts with the logins of a term."""
    replace = msgspec.structs.replace
    place = directory / _PLACE / name
    users = {
        user: replace(getattr(config.nats, user), creds=str(place / f"{user}.creds"))
        for user in _USERS
    }
    return replace(config, nats=replace(config.nats, **users))


async def shut_out_others(
    registry: Registry,
    accounts: AccountKeeper,
    system: Client,
    *,
    term_seq: int,
    servers: int,
    now_ns: int,
) -> None:
    """Return once the servers let the logins of former terms in no more, and have cut their connections.

    Of three servers one may be away, or silent for a second: it is told as soon as it answers.

    Raises:
        DeposedError: this term is over.
        RegistryError: hub.db refused.
    """
    former = [term for term in await read_terms(registry) if term.seq < term_seq]
    if former:
        rows = [
            Revocation(term.keys[account], account, f"{term.machine}, which led", now_ns)
            for term in former
            for account in _USERS.values()
        ]
        await registry.write([*map(revoke, rows), ended(term_seq)])
    while True:
        try:
            told = await accounts.push_at_once(system, _USERS.values(), _ANSWER_S)
        except DeposedError:
            raise
        except HubError as error:
            log.warning("former_leader_not_shut_out", error=str(error))
        else:
            if told > servers // 2:
                return
        await asyncio.sleep(_AGAIN_S)
