"""The rows of hub.db for the audit log: its last message, and the names behind its pseudonyms."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from backhaul_hub.audit.entry import NONE, AuditedAct
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry


async def head(registry: Registry) -> tuple[int, str]:
    """Return the sequence and the digest of the last message that is known to be stored. Raises: RegistryError."""
    rows = await registry.fetch("SELECT seq, digest FROM audit_head")
    return (rows[0][0], rows[0][1]) if rows else (0, NONE)


def put_head(seq: int, digest: str) -> RowChange:
    """Return the statement that notes the last message."""
    return RowChange("INSERT OR REPLACE INTO audit_head VALUES (0, ?, ?)", [(seq, digest)])


async def pseudonyms(registry: Registry, names: Iterable[str]) -> dict[str, str]:
    """Return the pseudonyms of names; those that have none are given one. Raises: RegistryError."""

    async def decided() -> tuple[Sequence[RowChange], dict[str, str]]:
        rows = await registry.fetch("SELECT name, pseudonym FROM audit_name")
        known: dict[str, str] = {row[0]: row[1] for row in rows}
        new = {name: new_pseudonym() for name in names if name not in known}
        return [RowChange("INSERT INTO audit_name VALUES (?, ?)", list(new.items()))], known | new

    return await registry.write_decided(decided)


async def names(registry: Registry) -> dict[str, str]:
    """Return whose the pseudonyms are that are somebody's still. Raises: RegistryError."""
    rows = await registry.fetch("SELECT pseudonym, name FROM audit_name")
    return {row[0]: row[1] for row in rows}


async def pending(registry: Registry) -> dict[int, tuple[int, AuditedAct]]:
    """Return the acts of command lines that no control plane has stored yet: number to (time, act). Raises: RegistryError."""
    found = await registry.fetch(
        "SELECT number, at_ns, who, what, about, detail, refused, person FROM audit_pending ORDER BY number"
    )
    return {
        number: (at_ns, AuditedAct(who, what, about, detail, refused, bool(person)))
        for number, at_ns, who, what, about, detail, refused, person in found
    }


def put_pending(at_ns: int, act: AuditedAct) -> RowChange:
    """Return the statement that keeps an act until a control plane runs."""
    row = (at_ns, act.who, act.what, act.about, act.detail, act.refused, act.person)
    return RowChange(
        "INSERT INTO audit_pending (at_ns, who, what, about, detail, refused, person)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [row],
    )


def drop_pending(numbers: Iterable[int]) -> RowChange:
    """Return the statement that forgets acts which are stored."""
    return RowChange("DELETE FROM audit_pending WHERE number = ?", [(each,) for each in numbers])


def new_pseudonym() -> str:
    """Return a name that says nothing."""
    return f"someone-{secrets.token_hex(6)}"
