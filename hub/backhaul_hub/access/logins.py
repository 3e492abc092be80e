"""Logins: JWTs of vehicles, and credentials of the hub's own users."""

from __future__ import annotations

from pathlib import Path

from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.access.account_names import AccountName
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.rules import vehicle_tags
from backhaul_hub.device import FLEET, Device
from backhaul_hub.lane_names import node_lanes
from backhaul_hub.nats.jwt import Rights, user_jwt
from backhaul_hub.nats.nkey import new_key
from backhaul_hub.private_files import write_private

OWN_USERS: dict[str, AccountName] = {
    "control": "HUB",
    "spark": "JOBS",
    "twin": "TWIN",
    "history": "HISTORY",
    "system": "SYS",
}
"""The hub's own users, as hub.toml names them, each with its account."""

PAGE = "page"
"""The user that serves the page to browsers: no person has this name."""
PAGE_RIGHTS = Rights(
    publish=(f"ask.read.{FLEET}.{PAGE}.login",),
    subscribe=(f"inbox.{PAGE}.>",),
    subs_max=10,
    payload_bytes_max=4096,
    connection_types=("STANDARD",),
)
"""The page's server passes on the logins of browsers, and may ask nothing else. An intruder there gets no more."""

_LATER: tuple[tuple[str, AccountName, Rights | None], ...] = (
    ("twin", OWN_USERS["twin"], None),
    ("history", OWN_USERS["history"], None),
    (PAGE, "PEOPLE", PAGE_RIGHTS),
)


def creds_file(user: str) -> str:
    """Return where one of them has its credentials, in the hub directory."""
    return f"creds/{user}.creds"


def add_later_logins(directory: Path, keys: HubKeys, *, now_s: int) -> list[str]:
    """Write the logins that a hub of before them has not; return the users whose they are.

    Raises:
        OSError: one cannot be written.
    """
    added = []
    for user, account, rights in _LATER:
        path = directory / creds_file(user)
        if not path.exists():
            path.parent.mkdir(exist_ok=True, mode=0o700)
            write_private(path, new_login(keys, user, account, now_s=now_s, rights=rights).text())
            added.append(user)
    return added


def vehicle_jwt(keys: HubKeys, device: Device, *, now_s: int) -> str:
    """Return the JWT of a device's key: its id, its token, its nodes' lanes.

    What it may do stands in the template of account FLEET. `now_s` is since the Unix epoch.
    """
    return user_jwt(
        device.id,
        device.public_key,
        keys.vehicles,
        keys.account("FLEET").public,
        now_s=now_s,
        tags=vehicle_tags(device.token, node_lanes(device)),
    )


def new_login(
    keys: HubKeys,
    name: str,
    account: AccountName,
    *,
    now_s: int,
    rights: Rights | None = None,
    expires_s: int = 0,
) -> Credentials:
    """Make a user of an account, with a key of its own.

    Args:
        keys: the hub's.
        name: what the server's events call it.
        account: where it logs in.
        now_s: since the Unix epoch.
        rights: what it may do; everything that its account can, where nothing is said.
        expires_s: when its login ends, since the Unix epoch; 0: never.
    """
    user, signer = new_key("user"), keys.account(account)
    jwt = user_jwt(
        name,
        user.public,
        signer,
        signer.public,
        now_s=now_s,
        rights=rights or Rights(),
        expires_s=expires_s,
    )
    return Credentials(user.seed, user.public, jwt, expires_s)
