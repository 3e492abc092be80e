"""How often each account was changed, and which hub.db may push it: never an older one (ADR 30).

Each account's JWT carries a generation, one more with each change of what it says. hub.db keeps the newest
that it knows of, written before a server hears of it. An hub.db that knows a lower one than the servers hold is
an older copy, or a copy beside the true one: what it would push is of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from backhaul_hub.access.account_names import AccountName
from backhaul_hub.access.revocations import FOR_A_WHILE_S
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.jwt import content_digest, generation_of


class Generation(NamedTuple):
    """The contents of an account, and the number of changes to it."""

    number: int = 0
    digest: str = ""
    """Of what it says; empty where that is not known."""


def of_jwt(jwt: str) -> Generation:
    """Return the generation of an account's JWT; the lowest, where it is none."""
    try:
        return Generation(generation_of(jwt), digest_of(jwt))
    except (ValueError, KeyError, AttributeError):
        return Generation()  # a server that never had the account


def digest_of(jwt: str) -> str:
    """Return the digest of an account's lasting contents. Raises: ValueError: it is no JWT."""
    return content_digest(jwt, FOR_A_WHILE_S)


def next_generation(own: Generation, there: Iterable[Generation], wanted: str) -> Generation | None:
    """Return the generation to push an account as; None where hub.db is older than the servers.

    Args:
        own: as hub.db has it.
        there: as each server has it.
        wanted: digest of what hub.db has the account say now.
    """
    newest = max(there, default=Generation())
    if own.number < newest.number:
        # What says the same is no older.
        return newest if newest.digest == wanted else None
    if own.digest == wanted:
        return own
    if not own.digest and newest == (own.number, wanted):
        return newest
    return Generation(own.number + 1, wanted)


async def generations(registry: Registry) -> dict[AccountName, Generation]:
    """Return hub.db's record of each account that it has seen to. Raises: RegistryError."""
    rows = await registry.fetch("SELECT account, generation, digest FROM account_generation")
    return {account: Generation(number, digest) for account, number, digest in rows}


def taken_over(
    own: Mapping[AccountName, Generation], *others: Mapping[AccountName, int]
) -> RowChange:
    """Return the statement by which hub.db is no older than any of these: it was put back.

    ``own``: what it knows itself.
    """
    newest = dict(own)
    for other in others:
        for account, number in other.items():
            if number > newest.get(account, Generation()).number:
                newest[account] = Generation(number)
    return put_generations(newest)


def put_generations(known: Mapping[AccountName, Generation]) -> RowChange:
    """Return the statement that stores generations."""
    rows = [(account, *each) for account, each in known.items()]
    return RowChange("INSERT OR REPLACE INTO account_generation VALUES (?, ?, ?)", rows)
