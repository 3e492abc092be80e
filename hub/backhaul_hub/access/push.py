"""Keeping the servers' accounts as hub.db says: logins, and the traffic between accounts.

Each account's JWT is built anew from the keys, the devices' lanes and the revocations, and pushed to
every server where that says something else than what it has. So whatever was lost or put back there,
an older JWT never stays, and with it never the login of a revoked key.

The other way round, servers and `keys/revocations.jsonl` may know more than hub.db: a key that is revoked
by any of the three is by all. A hub.db of a lower generation than the servers hold pushes nothing but
further revocations (ADR 30).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.subjects import node_lane
from backhaul_hub.access.account_names import ACCOUNTS, AccountName
from backhaul_hub.access.generations import (
    Generation,
    digest_of,
    generations,
    next_generation,
    of_jwt,
    put_generations,
)
from backhaul_hub.access.key_rotations import rotations
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.revocations import (
    FOR_A_WHILE_S,
    FOR_EVER_S,
    UNKNOWN_KEY,
    Revocation,
    in_force,
    revocations,
    revoke,
)
from backhaul_hub.access.rules import account_jwts
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.access.up_guard import guessable_names
from backhaul_hub.db.devices import read_devices, read_nodes
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import ConfigError, HubError, OlderRegistryError
from backhaul_hub.nats.jwt import body_of, revocations_of, same_but_for_time, with_revocations
from backhaul_hub.nats.system_requests import ask_each
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_NS_PER_S = 1_000_000_000
_NO_NUMBERS: Mapping[AccountName, int] = {}


class PushedAccounts(NamedTuple):
    """The accounts that servers should have."""

    jwts: dict[AccountName, str]
    older: str = ""
    """In what hub.db is older than the servers; empty: it is not."""


class AccountKeeper:
    """Builds and pushes the accounts of one hub.

    Args:
        servers: how many the hub has; each is asked what it has, and told.
        log: what else says who is revoked, and is told of it; None: nothing.
    """

    def __init__(
        self,
        keys: HubKeys,
        registry: Registry,
        clock: Clock,
        *,
        servers: int = 1,
        log: RevocationLog | None = None,
    ) -> None:
        self.older = ""
        """In what hub.db was found to be older than the servers; empty: it was not."""
        self._keys = keys
        self._registry = registry
        self._clock = clock
        self._servers = servers
        self._log = log
        self._kept_out: frozenset[str] = frozenset()
        self._turn = asyncio.Lock()

    async def push(self, system: Client) -> list[AccountName]:
        """Have every server know the accounts as they are now; return those that were others there.

        Args:
            system: a connection in the system account.

        Raises:
            OlderRegistryError: hub.db is older than what the servers have: they were told of further
                revocations, and of nothing else.
            HubError: a server refused or did not answer; those that did have taken it, and the
                others take it from them once they are back.
        """
        # One after another: what was built before must not be told after what was built since.
        async with self._turn:
            return await self._push(system)

    async def keep_out(self, system: Client, devices: frozenset[str]) -> None:
        """Let these devices not log in until this is called without them, and no others.

        As if their keys were revoked, but hub.db knows nothing of it.

        Raises:
            HubError: not every server was told: the next push does.
        """
        self._kept_out = devices
        await self.push(system)

    async def keep(self, system: Client, interval_s: float) -> None:
        """Push the differences every `interval_s` seconds (event loop's clock), for ever."""
        over = "accounts_known_everywhere_again"
        trouble = Trouble(log, "accounts_not_pushed", HubError, NatsError, over=over, wait_s=0.0)
        while True:
            await asyncio.sleep(interval_s)
            async with trouble:
                if pushed := await self.push(system):
                    log.info("accounts_pushed", accounts=pushed)

    async def push_at_once(
        self, system: Client, names: Collection[AccountName], wait_s: float
    ) -> int:
        """Push some accounts as hub.db has them; return the number of servers that took all of them.

        No server is waited for longer than `wait_s` seconds; `push` sees to generations later. Raises: HubError.
        """
        async with self._turn:
            jwts = await self.build()
            told = await asyncio.gather(
                *(self._update(system, name, jwts[name], self._servers, wait_s) for name in names)
            )
        return min(told)

    async def build(self) -> dict[AccountName, str]:
        """Return the accounts' JWTs, signed now."""
        known = await generations(self._registry)
        numbers = {name: at.number for name, at in known.items()}
        return await self._built(self._clock.now_ns() // _NS_PER_S, numbers)

    async def settle(self, there: Mapping[AccountName, Sequence[str]]) -> PushedAccounts:
        """Return the accounts' JWTs in place of the present ones; hub.db records them.

        `there`: what each server has of each account; "" where it has none.

        Raises:
            RegistryError: hub.db refused.
        """
        known = await generations(self._registry)
        held = {name: [of_jwt(jwt) for jwt in jwts] for name, jwts in there.items()}
        now_s = self._clock.now_ns() // _NS_PER_S
        numbers = {name: at.number for name, at in known.items()}
        wanted = await self._built(now_s, numbers)
        if older := self._older(known, held, wanted):
            return PushedAccounts(await self._further_revoked(there, now_s), older)
        if await self._learn(there):
            wanted = await self._built(now_s, numbers)
        new: dict[AccountName, Generation] = {}
        for name, jwt in wanted.items():
            # Of a lower number, hub.db says the same as the servers, but for what it has learnt just now.
            own = max(known.get(name, Generation()), *held[name], key=lambda each: each.number)
            found = next_generation(own, held[name], digest_of(jwt))
            assert found is not None  # none of the servers has a higher one
            new[name] = found
        if new != known:
            # Before anybody hears of it: whoever has this hub.db of before is older from then on.
            await self._registry.write([put_generations(new)])
            numbers = {name: at.number for name, at in new.items()}
            wanted = await self._built(now_s, numbers)
        return PushedAccounts(wanted)

    @staticmethod
    def _older(
        known: Mapping[AccountName, Generation],
        held: Mapping[AccountName, Sequence[Generation]],
        wanted: Mapping[AccountName, str],
    ) -> str:
        """Return the part in which hub.db is older than the servers, "" where it is not."""
        found = []
        for name, jwt in wanted.items():
            own = known.get(name, Generation())
            if next_generation(own, held[name], digest_of(jwt)) is None:
                newest = max(held[name]).number
                found.append(
                    f"account {name}: generation {own.number} here, {newest} at the servers"
                )
        return "; ".join(found)

    async def _learn(self, there: Mapping[AccountName, Sequence[str]]) -> bool:
        """Have hub.db and the log hold every revocation that is in force anywhere; tell whether hub.db changed."""
        rows = {row.public_key: row for row in await revocations(self._registry)}
        told = [
            row for row in self._told(there, self._clock.now_ns()) if row.public_key not in rows
        ]
        if told:
            log.warning("revocations_taken_over", keys=[row.public_key for row in told])
            await self._registry.write([revoke(row) for row in told])
        if self._log is not None:
            try:
                self._log.add([*rows.values(), *told])
            except ConfigError:
                # A key is shut out all the same.
                log.exception("revocations_not_kept")
        return bool(told)

    def _told(
        self, there: Mapping[AccountName, Sequence[str]], now_ns: int
    ) -> Iterable[Revocation]:
        """Return the log's revocations, and the servers': of those only that they are."""
        rows: dict[str, Revocation] = {}
        try:
            if self._log is not None:
                rows |= self._log.rows()
        except ConfigError:
            log.exception("revocations_not_read")
        for name, jwts in there.items():
            for key in set().union(*map(revoked_for_ever, jwts)):
                rows.setdefault(key, Revocation(key, name, "", now_ns))
        return rows.values()

    async def _further_revoked(
        self, there: Mapping[AccountName, Sequence[str]], now_s: int
    ) -> dict[AccountName, str]:
        """Return the servers' accounts, with every revocation that is known here besides."""
        told = self._told(there, now_s * _NS_PER_S)
        revoked = await self._revoked(now_s, in_force(list(told), now_s))
        found = await self._built(now_s)  # what a server has nothing of
        for name, jwts in there.items():
            newest = max(jwts, key=lambda jwt: (of_jwt(jwt).number, _signed_s(jwt)))
            if newest:
                found[name] = self._signed_anew(newest, now_s, revoked.get(name, {}))
        return found

    def _signed_anew(self, jwt: str, now_s: int, revoked: Mapping[str, int] | None = None) -> str:
        """Return an account as it is, signed later; `revoked`: the keys that it shuts out then."""
        revoked = revocations_of(jwt) if revoked is None else revoked
        return with_revocations(jwt, revoked, self._keys.operator_signing, now_s=now_s)

    async def _built(
        self, now_s: int, numbers: Mapping[AccountName, int] = _NO_NUMBERS
    ) -> dict[AccountName, str]:
        lanes = {node_lane(node) for node in await read_nodes(self._registry)}
        revoked = await self._revoked(now_s, {})
        return account_jwts(self._keys, lanes, revoked, now_s=now_s, generations=numbers)

    async def _revoked(
        self, now_s: int, also: Mapping[AccountName, Collection[str]]
    ) -> dict[AccountName, dict[str, int]]:
        """Return whom each account shuts out: for ever, and for a while."""
        devices = await read_devices(self._registry) if self._kept_out else {}
        revoked = in_force(await revocations(self._registry), now_s)
        for account, public_keys in also.items():
            revoked[account] = revoked.get(account, {}) | dict.fromkeys(public_keys, FOR_EVER_S)
        if kept_out := self._kept_out & devices.keys():
            void = {devices[each].public_key for each in kept_out}
            for each in (await rotations(self._registry)).values():
                if each.device in kept_out:  # on the way from one key to another: both log in
                    void |= {each.old_key, each.public_key} - {""}
            void = {key for key in void if not key.startswith(UNKNOWN_KEY)}
            revoked["FLEET"] = dict.fromkeys(void, FOR_A_WHILE_S) | revoked.get("FLEET", {})
        return revoked

    async def _push(self, system: Client) -> list[AccountName]:
        found = await asyncio.gather(
            *(jwts_there(system, self._keys, name, self._servers) for name in ACCOUNTS)
        )
        settled = await self.settle(dict(zip(ACCOUNTS, found, strict=True)))
        if settled.older and not self.older:
            log.error("accounts_older_than_the_servers", older=settled.older)
        self.older = settled.older
        pushed: list[AccountName] = []
        for name, jwt in settled.jwts.items():
            there = found[ACCOUNTS.index(name)]
            if all(_same(each, jwt) for each in there) and not (
                name == "UP" and await self._is_open(system)
            ):
                continue
            # Servers that compare take the newest, so none may be as new as this.
            newest = max(map(_signed_s, there))
            newer = jwt if newest < _signed_s(jwt) else self._signed_anew(jwt, newest + 1)
            await self._update(system, name, newer, len(there))
            pushed.append(name)
        if settled.older:
            raise OlderRegistryError(settled.older)
        if (answering := min(map(len, found))) < self._servers:
            raise HubError(f"{answering} of {self._servers} servers answer")
        return pushed

    async def _is_open(self, system: Client) -> bool:
        """Tell whether a server has the API in account UP, which being told of it once more mends."""
        names = await guessable_names(system, self._keys, self._servers)
        if names:
            log.error("api_was_open_in_account_up", names=sorted(names))
        return bool(names)

    async def _update(
        self, system: Client, name: AccountName, jwt: str, servers: int, wait_s: float | None = None
    ) -> int:
        """Tell the servers of an account; return how many took it. Raises: HubError."""
        subject = "$SYS.REQ.CLAIMS.UPDATE"
        answers = await ask_each(system, subject, jwt.encode(), servers, wait_s=wait_s)
        for answer in answers:
            if refused := json.loads(answer).get("error"):
                raise HubError(f"a server refused account {name}: {refused.get('description')}")
        return len(answers)


async def jwts_there(system: Client, keys: HubKeys, name: AccountName, servers: int) -> list[str]:
    """Return each server's JWT of an account; "" where it has none.

    Raises:
        HubError: none answers.
    """
    subject = f"$SYS.REQ.ACCOUNT.{keys.account(name).public}.CLAIMS.LOOKUP"
    return [each.decode() for each in await ask_each(system, subject, b"", servers)]


def revoked_for_ever(jwt: str) -> set[str]:
    """Return the keys that an account shuts out for ever; none, where it is no account."""
    try:
        until = revocations_of(jwt)
    except ValueError:
        return set()  # a server that never had the account
    # For a shorter time: kept out for a flood.
    return {key for key, until_s in until.items() if until_s == FOR_EVER_S}


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
