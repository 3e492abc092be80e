"""Whether hub.db was lost: it knows nobody, and all else says that there were devices.

A control plane that ran on with it would know of no vehicle, and tell servers so. It refuses instead, and
says what brings hub.db back (ADR 33). Where hub.db knows some devices and not others it is an older copy: the hub
runs, and the condition `device-unknown` names those.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backhaul_hub.access.account_names import AccountName
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.revocations import revocations
from backhaul_hub.backup.last_backup import last_backup
from backhaul_hub.backup.traces import Traces, has_durables, traces
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.erased import erasures
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import LostRegistryError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.people.rows import known_people

_NAMED_MAX = 10
FORMER = "hub.db.before-restore"


async def require_registry(
    directory: Path,
    keys: HubKeys,
    registry: Registry,
    api: JetStreamApi | None,
    shut_out: Mapping[AccountName, set[str]],
) -> None:
    """Refuse a hub.db that knows nobody where there were devices.

    Args:
        directory: the hub's.
        keys: the hub's.
        registry: hub.db.
        api: the server's, None where its accounts are lost and nobody can log in.
        shut_out: whom the servers' accounts shut out for ever.

    Raises:
        LostRegistryError: with what there was, and what to do.
        HubError: hub.db or the server does not answer.
    """
    devices = await read_devices(registry)
    # Of a hub that knows its devices, one question: all else takes seconds where there are thousands.
    if devices and (api is None or await has_durables(api, devices)):
        return
    if not devices and await erasures(registry):
        return  # it knows nobody any more, and why
    found = await traces(directory, keys, api)
    found.shut_out = shut_out
    # A document is all that a device has which was added and has never been here.
    past = {id_ for id_, trace in found.devices.items() if trace.places != {"document"}}
    if devices.keys() & (past or found.devices.keys()):
        return
    known = {row.public_key for row in await revocations(registry)} | set(
        await known_people(registry)
    )
    if said := _said(directory, found, empty=not devices and not known):
        path = directory / "hub.db"
        raise LostRegistryError(
            "\n  ".join([f"{path} knows none of the devices that this hub had:", *said]),
            hint=_hint(directory),
        )


def _said(directory: Path, found: Traces, *, empty: bool) -> list[str]:
    """Return the traces of devices, in words; nothing where all is as in a new hub.

    `empty`: hub.db knows nobody at all, nor that anybody was revoked.
    """
    said = []
    if found.devices:
        named = sorted(found.devices)
        more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
        places = sorted(set().union(*(each.places for each in found.devices.values())))
        said.append(
            f"{', '.join(named[:_NAMED_MAX])}{more} ({', '.join(places)}); UP holds"
            f" {sum(each.messages for each in found.devices.values()):,} messages of theirs"
        )
    if empty and found.keys_shut_out:
        said.append(f"{len(found.keys_shut_out)} keys are revoked, and stay so")
    if not empty:
        return said
    backup = last_backup(directory)
    if backup is not None and backup.devices:
        said.append(f"the backup {backup.path} of {backup.taken} has {backup.devices} devices")
    if (directory / FORMER).exists():
        said.append(f"{directory / FORMER} is an hub.db of before a restore")
    return said


def _hint(directory: Path) -> str:
    backup = last_backup(directory)
    place = backup.path if backup is not None else "BACKUP"
    return (
        f"rebuild it from what is left: backhaul-hub restore --from-streams --dir {directory}; or put it back from a"
        f" backup, the streams too: backhaul-hub restore {place} --replace --dir {directory}"
    )
