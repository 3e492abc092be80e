"""The hub's keys: `keys/` in the hub directory, each seed a file for its owner alone.

Whoever has `operator-signing.nk` makes accounts, whoever has `vehicles.nk` makes vehicles. The
operator's own seed, `operator.nk`, replaces the signing key and is needed by nothing that runs: it
belongs offline. Beside them stands a secret that is no key, `up-api.txt`.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backhaul_hub.access.account_names import ACCOUNTS, AccountName
from backhaul_hub.errors import ConfigError, KeyRefusedError
from backhaul_hub.nats.jwt import operator_jwt
from backhaul_hub.nats.nkey import Key, Kind, new_key, read_key
from backhaul_hub.private_files import write_private

_OPERATOR_JWT = "operator.jwt"
_UP_API, _UP_API_BYTES = "up-api.txt", 12
_LATER: tuple[AccountName, ...] = ("TWIN", "HISTORY")
"""Accounts that older hubs were made without."""
_OPERATOR, _OPERATOR_SIGNING, _VEHICLES = "operator", "operator-signing", "vehicles"


@dataclass(frozen=True, slots=True)
class HubKeys:
    """The hub's signing keys, and the operator's word on it."""

    operator_jwt: str
    """Public: which keys the server takes accounts from."""
    operator_signing: Key
    """Signs accounts."""
    accounts: Mapping[AccountName, Key]
    """Sign users of the hub's own."""
    vehicles: Key
    """Signs vehicles, whose rights are the template of account FLEET."""
    up_api: str
    """What JetStream's API is called in account UP, where nobody may guess it: one token of a subject."""

    @property
    def source_api(self) -> str:
        """The name by which streams of account UP know the part of the API that makes consumers: a secret as well.

        It stands in their configurations, which jobs may read, so it is no way to `up_api`.
        """
        return hmac.digest(self.up_api.encode(), b"PUSH", "sha256").hex()[: 2 * _UP_API_BYTES]

    def account(self, name: AccountName) -> Key:
        """Return an account's key."""
        return self.accounts[name]

    @classmethod
    def new(cls, *, now_s: int) -> tuple[Self, Key]:
        """Make all keys; return them, and the operator's own, which is to go offline."""
        operator, signing = new_key("operator"), new_key("operator")
        accounts: dict[AccountName, Key] = {name: new_key("account") for name in ACCOUNTS}
        said = operator_jwt(
            "backhaul", operator, signing.public, accounts["SYS"].public, now_s=now_s
        )
        found = cls(said, signing, accounts, new_key("account"), secrets.token_hex(_UP_API_BYTES))
        return found, operator


def key_directory(directory: Path) -> Path:
    """Return where a hub directory keeps its keys."""
    return directory / "keys"


def operator_seed_file(directory: Path) -> Path:
    """Return where a hub directory has the operator's own seed, unless it is elsewhere."""
    return key_directory(directory) / f"{_OPERATOR}.nk"


def write_keys(directory: Path, keys: HubKeys) -> None:
    """Write all keys but the operator's own. Raises: OSError."""
    target = key_directory(directory)
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(target / _OPERATOR_JWT, keys.operator_jwt + "\n")
    write_private(target / _UP_API, keys.up_api + "\n")
    for name, key in _files(keys).items():
        write_private(target / f"{name}.nk", key.seed + "\n")


def read_keys(directory: Path) -> HubKeys:
    """Read the keys of a hub directory.

    Raises:
        ConfigError: one is missing or damaged.
    """
    source = key_directory(directory)
    if not (source / _UP_API).exists():
        raise ConfigError(
            f"{directory} has no keys, or lacks {_UP_API}: it was made by an older backhaul, or is no hub directory",
            hint="make a new hub with: backhaul-hub init",
        )
    accounts: dict[AccountName, Key] = {
        name: _key(source, _file_of(name), "account")
        for name in ACCOUNTS
        if name not in _LATER or (source / f"{_file_of(name)}.nk").exists()
    }
    for name in _LATER:
        accounts.setdefault(name, _later_of(accounts["HUB"], name))
    return HubKeys(
        _text(source / _OPERATOR_JWT).strip(),
        _key(source, _OPERATOR_SIGNING, "operator"),
        accounts,
        _key(source, _VEHICLES, "account"),
        _secret(source / _UP_API),
    )


def _files(keys: HubKeys) -> dict[str, Key]:
    return {
        _OPERATOR_SIGNING: keys.operator_signing,
        _VEHICLES: keys.vehicles,
        **{_file_of(name): key for name, key in keys.accounts.items()},
    }


def _later_of(hub: Key, name: AccountName) -> Key:
    """Return the key of an account in a hub made before there was one: the same wherever HUB's is.

    So backups and hub directories of that time need no new file. Whoever has HUB's key may do all that
    users of these accounts may anyway.
    """
    return new_key(
        "account", lambda count: hmac.digest(hub.seed.encode(), name.encode(), "sha256")[:count]
    )


def _file_of(account: AccountName) -> str:
    return f"account-{account.lower()}"


def _key(source: Path, name: str, kind: Kind) -> Key:
    path = source / f"{name}.nk"
    try:
        key = read_key(_text(path))
    except KeyRefusedError as error:
        raise ConfigError(f"{path}: {error.message}") from error
    if key.kind != kind:
        raise ConfigError(f"{path} holds the seed of {_a(key.kind)}, not of {_a(kind)}")
    return key


def _secret(path: Path) -> str:
    found = _text(path).strip()
    # In hexadecimal digits, as it was made: anything else might be a wildcard.
    if re.fullmatch(rf"[0-9a-f]{{{2 * _UP_API_BYTES}}}", found) is None:
        raise ConfigError(f"{path} holds no name", hint="put it back from a backup")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", hint="put it back from a backup") from error


def _a(kind: Kind) -> str:
    return f"{'a' if kind == 'user' else 'an'} {kind}"
