"""Rebuilding hub.db from traces: `backhaul-hub restore --from-streams`. Pure but for reading hub.db.

Devices come back with key, token and nodes as far as any trace says so (backup/traces.py). What UP holds is
read again from its start, since no position is known: continuity, heads and marks come back by that. A device whose
key no trace says is noted with one that begins with `?`, until its login tells (enrol/adopter.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backhaul_hub.access.account_names import AccountName
from backhaul_hub.access.generations import generations, taken_over
from backhaul_hub.access.revocations import UNKNOWN_KEY, Revocation, revocations, revoke
from backhaul_hub.backup.traces import Trace, Traces
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import enrolled, read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.people.rows import Known, insertion, known_people

LOST = (
    "desired state and groups that stand at no vehicle, conflicts and what waited for vehicles",
    "the book of commands: one that a vehicle has not heard of expires unheard, its result stays in UP",
    "enrolment tokens that were open: make others, backhaul-hub enrol VID",
    "rotations of keys that were under way: backhaul-hub rotate VID",
)
"""What no trace says, and is not brought back; in words, for whoever restores."""
LOST_PEOPLE = (
    "users whose credentials are not in people/: they still get in, and no list names them. To shut them out, too,"
    " find their public keys in the server's log"
)


@dataclass(frozen=True, slots=True)
class RebuiltDevice:
    """The result for one device."""

    device: str
    state: str
    """known (hub.db had it), rebuilt, key unknown, not enrolled, or revoked."""
    nodes: tuple[str, ...]
    messages: int
    """Of its in UP."""
    places: tuple[str, ...]
    """Where it is known from."""


class Rebuilt(NamedTuple):
    """The contents of a rebuilt hub.db."""

    devices: tuple[RebuiltDevice, ...]
    people: tuple[str, ...]
    """Those that it did not know."""
    revoked: int
    """Keys that it did not know to be revoked."""
    unreadable: tuple[str, ...]


async def rebuild(
    registry: Registry,
    found: Traces,
    held: Mapping[AccountName, int],
    now_ns: int,
    new_token: Callable[[], str],
) -> Rebuilt:
    """Have hub.db know all that the traces say and it does not, whole or not at all.

    Args:
        registry: it; what it knows stays as it is.
        found: the traces, with whom servers shut out.
        held: the generation of each account, as servers have it: hub.db is no older afterwards.
        now_ns: since the Unix epoch.
        new_token: makes a device's token.

    Raises:
        RegistryError: hub.db refused; nothing is changed.
    """

    async def decide() -> tuple[Sequence[RowChange], Rebuilt]:
        known = await read_devices(registry)
        revoked = {row.public_key: row for row in await revocations(registry)}
        told = _told(found, now_ns)
        new = [row for key, row in told.items() if key not in revoked]
        changes: list[RowChange] = [revoke(row) for row in new]
        void = revoked.keys() | told.keys()
        rows = []
        for id_, trace in sorted(found.devices.items()):
            device, state = known.get(id_), "known"
            if device is None:
                device, state = _device(id_, trace, found, now_ns, new_token)
                changes += enrolled(device)
            if device.revoked_ns or device.public_key in void:
                state = "revoked"
            places = tuple(sorted(trace.places))
            rows.append(RebuiltDevice(id_, state, device.nodes, trace.messages, places))
        people = await known_people(registry)
        back = [
            Known(person, key, now_ns)
            for name, (person, key) in sorted(found.people.items())
            if name not in people and key not in void
        ]
        changes += [insertion(each) for each in back]
        changes.append(taken_over(await generations(registry), held))
        named = tuple(each.person.name for each in back)
        return changes, Rebuilt(tuple(rows), named, len(new), tuple(found.unreadable))

    return await registry.write_decided(decide)


def _told(found: Traces, now_ns: int) -> dict[str, Revocation]:
    """Return revocations by key: the log names their devices, servers do not."""
    at_servers = {
        key: Revocation(key, account, "", now_ns)
        for account, keys in found.shut_out.items()
        for key in keys
    }
    return at_servers | found.revoked


def _device(
    id_: str, trace: Trace, found: Traces, now_ns: int, new_token: Callable[[], str]
) -> tuple[Device, str]:
    """Return a device as far as it is known, and the name of its state."""
    nodes, token = tuple(sorted(trace.nodes)), trace.token or new_token()
    if trace.public_key:
        return Device(id_, token, trace.public_key, now_ns, nodes), "rebuilt"
    # Who is revoked has no document, while others have theirs, and soon no durable.
    documents = any("document" in each.places for each in found.devices.values())
    spent = [row for row in found.revoked.values() if (row.account, row.name) == ("FLEET", id_)]
    if spent and (documents or "durable" not in trace.places):
        newest = max(spent, key=lambda row: row.revoked_ns)
        return Device(id_, token, newest.public_key, now_ns, nodes), "revoked"
    state = "key unknown" if trace.token else "not enrolled"
    return Device(id_, token, f"{UNKNOWN_KEY}{id_}", now_ns, nodes), state
