"""The rows of enrolment tokens in hub.db. A token's own secret is never among them."""

from __future__ import annotations

from dataclasses import astuple, fields

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.rules import Enrolment

KEPT_NS = 90 * 86_400 * 1_000_000_000
"""For so long after its end a token is remembered, so that whoever tries it hears what became of it."""
RESTORED = "restored"
"""Why a token is void: hub.db came back from a backup, and does not know whether it was used since."""
_COLUMNS = ", ".join(each.name for each in fields(Enrolment))
_MARKS = ", ".join("?" for _ in fields(Enrolment))


def add(enrolment: Enrolment) -> list[RowChange]:
    """Return the statements that store a new token and take back the device's unused ones."""
    return [
        *void_open(enrolment.device, enrolment.made_ns, "replaced"),
        RowChange(f"INSERT INTO enrolment ({_COLUMNS}) VALUES ({_MARKS})", [astuple(enrolment)]),  # noqa: S608
    ]


def use(enrolment: Enrolment, public_key: str, now_ns: int) -> RowChange:
    """Return the statement that uses a token up. In the transaction that has decided so."""
    return RowChange(
        "UPDATE enrolment SET public_key = ?, used_ns = ? WHERE id = ?",
        [(public_key, now_ns, enrolment.id)],
    )


def void_open(device: str, now_ns: int, why: str) -> list[RowChange]:
    """Return the statements that take back a device's unused tokens."""
    return [
        RowChange(
            "UPDATE enrolment SET voided_ns = ?, why_voided = ? "
            "WHERE device = ? AND used_ns = 0 AND voided_ns = 0",
            [(now_ns, why, device)],
        )
    ]


def void_all(device: str, now_ns: int, why: str) -> list[RowChange]:
    """Return the statements that take back all of a device's tokens, used ones included."""
    return [
        RowChange(
            "UPDATE enrolment SET voided_ns = ?, why_voided = ? WHERE device = ? AND voided_ns = 0",
            [(now_ns, why, device)],
        )
    ]


def forget(now_ns: int) -> RowChange:
    """Return the statement that forgets tokens whose end is long past, and that no device is by."""
    return RowChange(
        "DELETE FROM enrolment WHERE max(expires_ns, used_ns, voided_ns) < ? "
        "AND device_token NOT IN (SELECT token FROM device)",
        [(now_ns - KEPT_NS,)],
    )


async def find(registry: Registry, id_: str) -> Enrolment | None:
    """Return a token by its id. Raises: RegistryError."""
    rows = await registry.fetch(f"SELECT {_COLUMNS} FROM enrolment WHERE id = ?", (id_,))  # noqa: S608
    return next((Enrolment(*row) for row in rows), None)


async def of_device(registry: Registry, device: str) -> list[Enrolment]:
    """Return a device's tokens, the newest last. Raises: RegistryError."""
    rows = await registry.fetch(
        f"SELECT {_COLUMNS} FROM enrolment WHERE device = ? ORDER BY made_ns",  # noqa: S608
        (device,),
    )
    return [Enrolment(*row) for row in rows]


async def of_devices_after(registry: Registry, after: str, count: int) -> list[Enrolment]:
    """Return all tokens of the devices that come after one, at most `count` devices, the newest last. Raises: RegistryError."""
    rows = await registry.fetch(
        f"SELECT {_COLUMNS} FROM enrolment WHERE device IN (SELECT DISTINCT device FROM enrolment"  # noqa: S608
        " WHERE device > ? ORDER BY device LIMIT ?) ORDER BY device, made_ns",
        (after, count),
    )
    return [Enrolment(*row) for row in rows]


async def open_tokens(registry: Registry, now_ns: int) -> list[str]:
    """Return the devices that have a token which can still be used. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT DISTINCT device FROM enrolment "
        "WHERE used_ns = 0 AND voided_ns = 0 AND expires_ns > ? ORDER BY device",
        (now_ns,),
    )
    return [device for (device,) in rows]
