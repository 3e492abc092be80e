"""The names of the accounts that the hub's servers have. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

AccountName: TypeAlias = Literal[
    "SYS", "HUB", "UP", "FLEET", "JOBS", "TWIN", "HISTORY", "ENROL", "PEOPLE"
]


ACCOUNTS: tuple[AccountName, ...] = get_args(AccountName)
