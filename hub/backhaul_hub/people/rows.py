"""The rows of people in hub.db: names and credentials."""

from __future__ import annotations

from typing import NamedTuple

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.people.identity import May, Person


class Known(NamedTuple):
    """Somebody who has credentials."""

    person: Person
    public_key: str
    added_ns: int


def insertion(known: Known) -> RowChange:
    """Return the statement that adds somebody."""
    name, group, may = known.person
    row = (name, group, may.value, known.public_key, known.added_ns)
    return RowChange("INSERT INTO person VALUES (?, ?, ?, ?, ?)", [row])


def removal(name: str) -> RowChange:
    """Return the statement that takes somebody out."""
    return RowChange("DELETE FROM person WHERE name = ?", [(name,)])


async def known_people(registry: Registry) -> dict[str, Known]:
    """Return all who have credentials, by name. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT name, group_address, may, public_key, added_ns FROM person ORDER BY name"
    )
    return {
        name: Known(Person(name, group, May(may)), public_key, added_ns)
        for name, group, may, public_key, added_ns in rows
    }
