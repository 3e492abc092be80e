"""Users' keys that are worth nothing any more, in hub.db: every account JWT is built from them.

A key is never given out again once it is here. Rows whose JWT has expired by itself may go.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from backhaul_hub.access.account_names import AccountName
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

UNKNOWN_KEY = "?"
"""What begins the key of a device that hub.db does not know: it was rebuilt. No account shuts such a key out."""
# Whatever was or will be signed for the key: the clock of whoever signs may be wrong.
FOR_EVER_S = 1 << 40
# As good for now, and another number: who reads an account's JWT can tell it from what hub.db says.
FOR_A_WHILE_S = FOR_EVER_S - 1


@dataclass(frozen=True, slots=True)
class Revocation:
    """One key that may not log in any more."""

    public_key: str
    account: AccountName
    name: str
    """Whose it was: for people."""
    revoked_ns: int
    """Since the Unix epoch."""
    expires_s: int = 0
    """When its JWT expires by itself, since the Unix epoch; 0: never."""


def revoke(revocation: Revocation) -> RowChange:
    """Return the statement that revokes a key; a second time changes nothing."""
    return RowChange(
        "INSERT OR IGNORE INTO revocation VALUES (?, ?, ?, ?, ?)", [astuple(revocation)]
    )


async def revocations(registry: Registry) -> list[Revocation]:
    """Return all of them, by key. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT public_key, account, name, revoked_ns, expires_s FROM revocation ORDER BY public_key"
    )
    return [Revocation(*row) for row in rows]


def in_force(rows: list[Revocation], now_s: int) -> dict[AccountName, dict[str, int]]:
    """Return the revocations in account JWTs: by account and key, up to when signatures are void."""
    found: dict[AccountName, dict[str, int]] = {}
    for row in rows:
        if row.public_key.startswith(UNKNOWN_KEY):
            continue
        if not row.expires_s or row.expires_s > now_s:
            found.setdefault(row.account, {})[row.public_key] = FOR_EVER_S
    return found
