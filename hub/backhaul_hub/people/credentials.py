"""Giving people credentials, and withdrawing them."""

from __future__ import annotations

from pathlib import Path

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import FLEET
from backhaul_hub.errors import ConfigError, RightsError
from backhaul_hub.people import page_rows
from backhaul_hub.people.identity import Person, require_person_name
from backhaul_hub.people.rows import Known, insertion, known_people, removal
from backhaul_hub.private_files import alone_in, private_directory, write_private
from backhaul_hub.sync.heads import FleetHeads, head_row
from backhaul_hub.sync.tree import FleetTree
from backhaul_runtime.clock import Clock

_SECOND_NS = 1_000_000_000


async def add_person(directory: Path, clock: Clock, person: Person, target: Path) -> None:
    """Write credentials for somebody, readable by the owner alone. No server has to be told.

    Raises:
        RightsError: it is no name, or taken; or the group is not in the tree.
        ConfigError: the hub has no keys, or the file cannot be written; nobody was added.
        RegistryError: hub.db is not usable.
    """
    require_person_name(person.name)
    keys, now_ns = read_keys(directory), clock.now_ns()
    now_s = now_ns // _SECOND_NS
    login = new_login(keys, person.name, "PEOPLE", now_s=now_s, rights=person.rights)
    with alone_in(directory):
        async with await Registry.open(directory / "hub.db") as registry:
            if not in_tree(await tree_above(registry), person.group):
                raise RightsError(
                    f"there is no group or device {person.group}", hint="see: backhaul-hub tree"
                )
            if person.name in await known_people(registry):
                raise RightsError(
                    f"there is a user {person.name} already",
                    hint=f"first: backhaul-hub user rm {person.name}",
                )
            try:
                # What the person needs first, the row last: what fails halfway can be made again.
                private_directory(target.parent)
                write_private(target, login.text())
            except OSError as error:
                raise ConfigError(f"{target}: {error.strerror}") from error
            await registry.write([insertion(Known(person, login.public_key, now_ns))])


async def remove_person(directory: Path, clock: Clock, name: str) -> None:
    """Withdraw somebody's credentials in hub.db, for ever, and log their browsers out; servers are the caller's to tell.

    Raises:
        RightsError: there is nobody of that name.
        RegistryError: hub.db is not usable.
    """
    async with await Registry.open(directory / "hub.db") as registry:

        async def withdrawn() -> tuple[list[RowChange], None]:
            known = (await known_people(registry)).get(name)
            if known is None:
                raise RightsError(f"there is no user {name}", hint="see: backhaul-hub user ls")
            now_ns = clock.now_ns()
            row = Revocation(known.public_key, "PEOPLE", name, now_ns)
            browsers = await page_rows.end_sessions(registry, name, now_ns)
            return [revoke(row), removal(name), page_rows.end_links(name), *browsers], None

        await registry.write_decided(withdrawn)


async def tree_above(registry: Registry) -> FleetTree:
    """Return the tree above devices, as hub.db has it. Raises: RegistryError."""
    heads, devices = FleetHeads(), await read_devices(registry)
    rows = await registry.fetch("SELECT * FROM head WHERE device = ?", (FLEET,))
    heads.restore(map(head_row, rows))
    return FleetTree(heads, lambda: devices)


def in_tree(tree: FleetTree, group: str) -> bool:
    """Tell whether somebody may have rights there: a group or a device, no node inside of one."""
    return "/" not in group and tree.attached(group)
