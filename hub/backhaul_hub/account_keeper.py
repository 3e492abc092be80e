"""Keeping the servers' accounts as hub.db says: who may log in, and what goes between accounts.

Each account's JWT is built anew from the keys, the devices' lanes and the revocations, and pushed to
every server where that says something else than what it has. So whatever was lost or put back there,
an older JWT never stays, and with it never the login of a revoked key.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError

from .accounts import account_jwts
from .errors import HubError
from .fellow_servers import ask_each
from .lanes import node_lanes
from .nats_jwt import body_of, same_but_for_time
from .revocations import FOR_A_WHILE_S, FOR_EVER_S, Revocation, in_force, revocations, revoke
from .rotations import rotations
from .up_guard import guessable_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nats.aio.client import Client

    from .accounts import AccountName
    from .clock import Clock
    from .keys import HubKeys
    from .registry import Registry

log = structlog.get_logger(__name__)

_NS_PER_S = 1_000_000_000
_NOBODY: Mapping[AccountName, Collection[str]] = {}


class AccountKeeper:
    """Builds and pushes the accounts of one hub.

    Args:
        keys: the hub's.
        registry: hub.db.
        servers: how many the hub has; each is asked what it has, and told.
    """

    def __init__(
        self, keys: HubKeys, registry: Registry, clock: Clock, *, servers: int = 1
    ) -> None:
        self._keys = keys
        self._registry = registry
        self._clock = clock
        self._servers = servers
        self._kept_out: frozenset[str] = frozenset()
        self._turn = asyncio.Lock()

    async def push(self, system: Client) -> list[AccountName]:
        """Have every server know the accounts as they are now; return those that were others there.

        Args:
            system: a connection in the system account.

        Raises:
            HubError: a server refused or did not answer; those that did have taken it, and the
                others take it from them once they are back.
        """
        # One after another: what was built before must not be told after what was built since.
        async with self._turn:
            return await self._push(system)

    async def revoke(
        self, system: Client, public_key: str, name: str, account: AccountName, expires_s: int = 0
    ) -> None:
        """Revoke a user's key for ever: its connections are cut at once, and it never comes back.

        Args:
            system: a connection in the system account.
            public_key: the user's.
            name: whose it is, for people.
            account: the one it logs in to.
            expires_s: when its JWT expires by itself, since the Unix epoch; 0: never.

        Raises:
            RegistryError: hub.db refused; nothing is revoked.
            HubError: it stands in hub.db, but not every server was told: the next push does.
        """
        now_ns = self._clock.now_ns()
        row = Revocation(public_key, account, name, now_ns, expires_s)
        await self._registry.write([revoke(row)])
        await self.push(system)

    async def keep_out(self, system: Client, devices: frozenset[str]) -> None:
        """Let these devices not log in until this is called without them, and no others.

        As if their keys were revoked, but hub.db knows nothing of it.

        Raises:
            HubError: not every server was told: the next push does.
        """
        self._kept_out = devices
        await self.push(system)

    async def keep(self, system: Client, interval_s: float) -> None:
        """Push what differs every `interval_s` seconds (event loop's clock), for ever."""
        trouble = ""
        while True:
            await asyncio.sleep(interval_s)
            try:
                if pushed := await self.push(system):
                    log.info("accounts_pushed", accounts=pushed)
            except (HubError, NatsError) as error:
                if not trouble:
                    log.warning("accounts_not_pushed", error=str(error))
                trouble = str(error)
            else:
                if trouble:
                    log.info("accounts_known_everywhere_again")
                trouble = ""

    async def build(
        self, now_s: int = 0, also_revoked: Mapping[AccountName, Collection[str]] = _NOBODY
    ) -> dict[AccountName, str]:
        """Return the accounts' JWTs, signed now or at `now_s` since the Unix epoch.

        `also_revoked`: keys that hub.db does not know to be revoked, and are for ever.
        """
        now_s = now_s or self._clock.now_ns() // _NS_PER_S
        devices = await self._registry.devices()
        lanes = {lane for device in devices.values() for lane in node_lanes(device)}
        revoked = in_force(await revocations(self._registry), now_s)
        for account, public_keys in also_revoked.items():
            revoked[account] = revoked.get(account, {}) | dict.fromkeys(public_keys, FOR_EVER_S)
        if kept_out := self._kept_out & devices.keys():
            void = {devices[each].public_key for each in kept_out}
            for each in (await rotations(self._registry)).values():
                if each.device in kept_out:  # on the way from one key to another: both log in
                    void |= {each.old_key, each.public_key} - {""}
            revoked["FLEET"] = dict.fromkeys(void, FOR_A_WHILE_S) | revoked.get("FLEET", {})
        return account_jwts(self._keys, lanes, revoked, now_s=now_s)

    async def _push(self, system: Client) -> list[AccountName]:
        jwts = await self.build()
        found = await asyncio.gather(
            *(jwts_there(system, self._keys, name, self._servers) for name in jwts)
        )
        pushed: list[AccountName] = []
        for (name, jwt), there in zip(jwts.items(), found, strict=True):
            if all(_same(each, jwt) for each in there) and not (
                name == "UP" and await self._is_open(system)
            ):
                continue
            # Servers that compare take the newest, so none may be as new as this.
            newest = max(map(_signed_s, there))
            newer = (await self.build(newest + 1))[name] if newest >= _signed_s(jwt) else jwt
            await self._update(system, name, newer, len(there))
            pushed.append(name)
        if (answering := min(map(len, found))) < self._servers:
            raise HubError(f"{answering} of {self._servers} servers answer")
        return pushed

    async def _is_open(self, system: Client) -> bool:
        """Tell whether a server has the API in account UP, which being told of it once more mends."""
        names = await guessable_names(system, self._keys, self._servers)
        if names:
            log.error("api_was_open_in_account_up", names=sorted(names))
        return bool(names)

    async def _update(self, system: Client, name: AccountName, jwt: str, servers: int) -> None:
        for answer in await ask_each(system, "$SYS.REQ.CLAIMS.UPDATE", jwt.encode(), servers):
            if refused := json.loads(answer).get("error"):
                raise HubError(f"a server refused account {name}: {refused.get('description')}")


async def jwts_there(system: Client, keys: HubKeys, name: AccountName, servers: int) -> list[str]:
    """Return what the servers have of an account, of each that answers; "" where it has none.

    Raises:
        HubError: none answers.
    """
    subject = f"$SYS.REQ.ACCOUNT.{keys.account(name).public}.CLAIMS.LOOKUP"
    return [each.decode() for each in await ask_each(system, subject, b"", servers)]


def _same(there: str, jwt: str) -> bool:
    try:
        return same_but_for_time(there, jwt)
    except ValueError:
        return False


def _signed_s(jwt: str) -> int:
    try:
        return int(body_of(jwt)["iat"])
    except (ValueError, KeyError, TypeError):
        return 0
