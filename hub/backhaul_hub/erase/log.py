"""`keys/erasures.jsonl`: vehicles and people that were erased, a signed line each: an older hub.db, put back, is told of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backhaul_hub.access.signed_log import SignedLog
from backhaul_hub.db.erased import (
    ErasedPerson,
    Erasure,
    erased_people,
    erasures,
    put_erasures,
    put_people,
)
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.nkey import Key

NAME = "erasures.jsonl"


@dataclass(frozen=True, slots=True)
class Erased:
    """One line: a device, or a person by the hash of the name and with a pseudonym."""

    asked_ns: int
    device: str = ""
    first_ns: int = 0
    person: str = ""
    pseudonym: str = ""


class ErasureLog(SignedLog[Erased]):
    """The file of one hub directory; arguments as `RevocationLog`."""

    def __init__(self, directory: Path, signer: Key) -> None:
        super().__init__(
            directory,
            signer,
            name=NAME,
            purpose="backhaul erasure",
            row=Erased,
            key=lambda row: f"device {row.device}" if row.device else f"person {row.person}",
        )

    async def merge(self, registry: Registry) -> None:
        """Have file and hub.db know all that one of them knows. Raises: RegistryError, ConfigError."""
        devices, people = await erasures(registry), await erased_people(registry)
        self.add(Erased(each.asked_ns, each.device, each.first_ns) for each in devices.values())
        self.add(
            Erased(each.asked_ns, person=each.hash, pseudonym=each.pseudonym)
            for each in people.values()
        )
        lines = self.rows().values()
        await registry.write(
            [
                put_erasures(
                    Erasure(each.device, each.asked_ns, each.first_ns)
                    for each in lines
                    if each.device and each.device not in devices
                ),
                put_people(
                    ErasedPerson(each.person, each.pseudonym, each.asked_ns)
                    for each in lines
                    if each.person and each.person not in people
                ),
            ]
        )
