"""Whether account UP knows JetStream's API by a name that can be guessed, as each server says itself.

A server adds an import of the API to every JetStream account, unless UP's own stands in its place.
Should it take SYS not to offer that one yet, it leaves it out without a word, and adds its own:
whoever is behind a source could then reach the API (ADR 25).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from nats.aio.client import Client

from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.rules import source_api_subjects
from backhaul_hub.nats.system_requests import ask_each
from backhaul_runtime.jetstream import API


async def guessable_names(system: Client, keys: HubKeys, servers: int) -> set[str]:
    """Return the names in account UP, but for the secret one, that lead to the API at any server.

    Args:
        system: a connection in the system account.
        keys: the hub's.
        servers: how many the hub has. One that has not loaded the account has no stream of it either.

    Raises:
        HubError: none answered.
        NatsError: the connection is closed.
    """
    ask = json.dumps({"account": keys.account("UP").public}).encode()
    found: set[str] = set()
    for answer in await ask_each(system, "$SYS.REQ.SERVER.PING.ACCOUNTZ", ask, servers):
        detail = (json.loads(answer).get("data") or {}).get("account_detail") or {}
        found |= leading_to_api(detail.get("imports") or [], keys.account("SYS").public)
    return found - {f"{keys.up_api}.>", *source_api_subjects(keys.source_api)}


def leading_to_api(imports: Iterable[dict[str, Any]], system_account: str) -> set[str]:
    """Return under which names an account's imports have the API. Pure."""
    return {
        each.get("local_subject") or each["subject"]
        for each in imports
        if each.get("account") == system_account and each.get("subject", "").startswith(f"{API}.")
    }
