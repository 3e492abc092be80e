"""Why there is no link: tried by a leaf server of our own, whose log gives the reason.

The vehicle's leaf server tells nobody but its log, which only who runs it can read, and the hub tells a
vehicle that it does not let in nothing but that. So `backhaul-agent status` has another server log in
as this vehicle, under a name of its own, and reads what comes of it. Nothing is published or heard.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from backhaul_agent.enrol.request import LOGIN_REFUSED
from backhaul_agent.enrol.temporary_leaf import TemporaryLeaf, temporary_leaf
from backhaul_agent.enrol.vehicle_files import CA, DEVICE_CREDS, LEAF_CONF
from backhaul_agent.leaf.config_text import leaf_urls_of
from backhaul_codec.protocol.credentials import Credentials, CredentialsError, parse_credentials
from backhaul_codec.protocol.enrolment import Token

# Over a link of 600 ms and 20 kbit/s a login with TLS takes about ten seconds.
TRY_S_MAX = 20.0
# A server says that it is connected before the hub has looked at the login.
SETTLED_S = 3.0
_LOOK_S = 0.05


async def why_no_link(found: Mapping[str, str], now_s: float) -> str:
    """Return in a sentence the reason why the link is down; empty: none, or nobody can tell.

    ``found``: the vehicle's files by name.

    Raises:
        EnrolmentFailedError: there is no nats-server, or it does not start.
    """
    urls = leaf_urls_of(found.get(LEAF_CONF, ""))
    if not urls or DEVICE_CREDS not in found:
        return ""
    try:
        login = parse_credentials(found[DEVICE_CREDS])
    except CredentialsError as error:
        return f"{DEVICE_CREDS} holds no login: {error}"
    token = Token(
        id=secrets.token_hex(12), device="this vehicle", leaf_urls=urls, ca=found.get(CA, ""),
        jwt=login.jwt, seed=login.seed, expires_s=0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="backhaul-") as directory:
        async with temporary_leaf(token, Path(directory) / "leaf") as leaf:
            return explain(await _complaint(leaf), login, now_s)


def explain(complaint: str, login: Credentials, now_s: float) -> str:
    """Return a server's complaint about its link in words for people; empty where there is none."""
    if LOGIN_REFUSED not in complaint:
        return complaint and f"no link to the hub: {complaint}"
    why = login.expired(now_s) or "it was revoked or replaced, or is of another hub"
    return (
        f"the hub does not let the key {login.public_key} in: {why}"
        " (at the hub: backhaul-hub devices; to let it in again: backhaul-hub enrol)"
    )


async def _complaint(leaf: TemporaryLeaf) -> str:
    """Wait until the server complains, or its link has stood for a while."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + TRY_S_MAX
    connected = False
    while loop.time() < end_s:
        if found := leaf.complaints():
            return found[-1]
        if not connected and leaf.connected():
            connected, end_s = True, min(end_s, loop.time() + SETTLED_S)
        await asyncio.sleep(_LOOK_S)
    return "" if connected else f"the hub has not answered in {TRY_S_MAX:g} s"
