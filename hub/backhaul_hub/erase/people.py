"""A person's name taken out of hub.db: a pseudonym stands in its place, so that two acts of one person are still known for that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backhaul_hub.access.revocations import Revocation
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.audit.rows import new_pseudonym
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.erased import ErasedPerson, erased_people, put_people
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.nkey import Key

_WRITER = "hub:"
# Where hub.db names who did something.
_NAMES = {
    "person": ("name",),
    "page_link": ("name",),
    "page_session": ("name",),
    "command": ("who",),
    "alert": ("acked_by",),
    "alert_silence": ("who", "ended_by"),
    "conflict": ("resolved_by",),
}
_GONE = frozenset({"person", "page_link", "page_session"})
"""Of these the rows go: they are the rights of the person."""


def hash_of(signer: Key, name: str) -> str:
    """Return the hash of a name that only the holder of the hub's keys can make."""
    return hashlib.sha256(signer.sign(f"backhaul person\n{name}".encode())).hexdigest()


async def counted(registry: Registry, name: str) -> dict[str, int]:
    """Return how many rows of each table name a person. Raises: RegistryError."""
    found = {}
    for table, columns in [*_NAMES.items(), ("revocation", ("name",)), ("audit_name", ("name",))]:
        where = " OR ".join(f"{column} IN (?1, ?2)" for column in columns)
        query = f"SELECT count(*) FROM {table} WHERE {where}"  # noqa: S608 - of the tables above
        [(count,)] = await registry.fetch(query, (name, f"{_WRITER}{name}"))
        if count:
            found[table] = count
    return found


async def erase_person(registry: Registry, signer: Key, name: str, now_ns: int) -> ErasedPerson:
    """Replace a name everywhere in hub.db; the person stays known by a hash alone. Raises: RegistryError."""

    async def decided() -> tuple[list[RowChange], ErasedPerson]:
        known = (await erased_people(registry)).get(hash_of(signer, name))
        rows = await registry.fetch("SELECT pseudonym FROM audit_name WHERE name = ?", (name,))
        pseudonym = rows[0][0] if rows else new_pseudonym()
        person = known or ErasedPerson(hash_of(signer, name), pseudonym, now_ns)
        return [put_people([person]), *_replacements(name, person.pseudonym)], person

    return await registry.write_decided(decided)


async def erase_again(registry: Registry, signer: Key) -> int:
    """Replace names that were erased before and are here again, as after a restore; return how many. Raises: RegistryError."""
    erased = await erased_people(registry)
    if not erased:
        return 0
    names = set[str]()
    for table, columns in [*_NAMES.items(), ("revocation", ("name",)), ("audit_name", ("name",))]:
        for column in columns:
            query = f"SELECT DISTINCT {column} FROM {table}"  # noqa: S608 - of the tables above
            names |= {row[0].removeprefix(_WRITER) for row in await registry.fetch(query)}
    found = {
        name: erased[hash_of(signer, name)] for name in names if hash_of(signer, name) in erased
    }
    changes = [
        each for name, person in found.items() for each in _replacements(name, person.pseudonym)
    ]
    await registry.write(changes)
    return len(found)


async def forget_in_file(registry: Registry, directory: Path, signer: Key) -> None:
    """Have the file of revocations name nobody who was erased. Raises: RegistryError, ConfigError."""
    if not (erased := await erased_people(registry)):
        return

    def renamed(row: Revocation) -> Revocation:
        person = erased.get(hash_of(signer, row.name)) if row.account == "PEOPLE" else None
        return replace(row, name=person.pseudonym) if person else row

    RevocationLog(directory, signer).rewrite(renamed)


def _replacements(name: str, pseudonym: str) -> Iterable[RowChange]:
    pairs = [(name, pseudonym), (f"{_WRITER}{name}", f"{_WRITER}{pseudonym}")]
    for table, columns in _NAMES.items():
        for column in columns:
            if table in _GONE:
                yield RowChange(f"DELETE FROM {table} WHERE {column} = ?", [(name,)])  # noqa: S608
            else:
                update = f"UPDATE {table} SET {column} = ? WHERE {column} = ?"  # noqa: S608
                yield RowChange(update, [(new, old) for old, new in pairs])
    yield RowChange("UPDATE revocation SET name = ? WHERE name = ?", [(pseudonym, name)])
    yield RowChange("DELETE FROM audit_pending WHERE ? IN (about, who)", [(name,)])
    yield RowChange("DELETE FROM audit_name WHERE name = ?", [(name,)])
