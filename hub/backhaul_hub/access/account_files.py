"""The files of accounts that the hub's servers read, in the hub's directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backhaul_hub.access.account_names import ACCOUNTS, AccountName
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.servers import (
    server_directories,
)


def resolver_directories(directory: Path) -> list[Path]:
    """Return where servers find accounts when they start."""
    return [_resolver(each) for each in server_directories(directory)]


def write_accounts(directory: Path, keys: HubKeys, jwts: Mapping[AccountName, str]) -> None:
    """Write accounts where servers that do not run yet find them. Raises: OSError."""
    for target in resolver_directories(directory):
        private_directory(target)
        for name, jwt in jwts.items():
            write_private(target / f"{keys.account(name).public}.jwt", jwt)


def _resolver(directory: Path) -> Path:
    return (directory / "accounts").absolute()


def jwts_in_files(directory: Path, keys: HubKeys) -> dict[AccountName, list[str]]:
    """Return each account's JWT as servers find it when they start. Raises: OSError."""
    found: dict[AccountName, list[str]] = {name: [] for name in ACCOUNTS}
    for place in resolver_directories(directory):
        for name, jwts in found.items():
            path = place / f"{keys.account(name).public}.jwt"
            jwts.append(path.read_text() if path.exists() else "")
    return found
