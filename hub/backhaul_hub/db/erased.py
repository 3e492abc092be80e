"""The rows of hub.db about erasures on request (ADR 58).

They outlive what they are about: an id that was erased is never a device's again, its hours are `erased`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

BEGUN, DONE = "begun", "done"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One device that is erased, or is to be."""

    device: str
    asked_ns: int
    """Since the Unix epoch, as all times here."""
    first_ns: int
    """The time of its first mark, or of the first hour imported; 0: it had none."""
    state: str = BEGUN
    """Of the hub's own places."""
    done_ns: int = 0
    tables_ns: int = 0
    """When an operator said that the tables are done, or the server of history; 0: nobody has."""


@dataclass(frozen=True, slots=True)
class ErasedPerson:
    """One person whose name is kept nowhere."""

    hash: str
    """By which this hub, and nobody else, knows the name again (`erase.people`)."""
    pseudonym: str
    """What stands in the place of the name."""
    asked_ns: int


async def erasures(registry: Registry) -> dict[str, Erasure]:
    """Return all erasures, by device. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT device, asked_ns, first_ns, state, done_ns, tables_ns FROM erasure ORDER BY device"
    )
    return {row[0]: Erasure(*row) for row in rows}


async def erasure_of(registry: Registry, device: str) -> Erasure | None:
    """Return the erasure of a device, None where it was not erased. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT device, asked_ns, first_ns, state, done_ns, tables_ns FROM erasure WHERE device = ?",
        (device,),
    )
    return next((Erasure(*row) for row in rows), None)


def put_erasures(rows: Iterable[Erasure]) -> RowChange:
    """Return the statement that stores erasures, in place of those of the same devices."""
    return RowChange(
        "INSERT OR REPLACE INTO erasure VALUES (?, ?, ?, ?, ?, ?)", [astuple(each) for each in rows]
    )


async def erased_people(registry: Registry) -> dict[str, ErasedPerson]:
    """Return the people who were erased, by the hash of their names. Raises: RegistryError."""
    rows = await registry.fetch("SELECT hash, pseudonym, asked_ns FROM erased_person")
    return {row[0]: ErasedPerson(*row) for row in rows}


def put_people(rows: Iterable[ErasedPerson]) -> RowChange:
    """Return the statement that stores erased people; those that are there stay."""
    return RowChange(
        "INSERT OR IGNORE INTO erased_person VALUES (?, ?, ?)", [astuple(each) for each in rows]
    )
