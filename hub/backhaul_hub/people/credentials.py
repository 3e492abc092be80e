"""Giving people credentials, and withdrawing them."""

from __future__ import annotations

from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import new_login
from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import FLEET
from backhaul_hub.errors import RightsError
from backhaul_hub.people import page_rows
from backhaul_hub.people.identity import Person, require_person_name
from backhaul_hub.people.rows import Known, insertion, known_people, removal
from backhaul_hub.sync.heads import FleetHeads, head_row
from backhaul_hub.sync.tree import FleetTree
from backhaul_runtime.clock import Clock

_SECOND_NS = 1_000_000_000


async def add_person(
    registry: Registry, keys: HubKeys, clock: Clock, person: Person
) -> Credentials:
    """Return credentials for somebody, which nobody keeps here. No server has to be told.

    Raises:
        RightsError: it is no name, or taken; or the group is not in the tree.
        RegistryError: hub.db is not usable.
    """
    require_person_name(person.name)
    now_ns = clock.now_ns()
    login = new_login(keys, person.name, "PEOPLE", now_s=now_ns // _SECOND_NS, rights=person.rights)

    async def added() -> tuple[list[RowChange], None]:
        if not in_tree(await tree_above(registry), person.group):
            raise RightsError(
                f"there is no group or device {person.group}", hint="see: backhaul-hub tree"
            )
        if person.name in await known_people(registry):
            raise RightsError(
                f"there is a user {person.name} already",
                hint=f"first: backhaul-hub user rm {person.name}",
            )
        return [insertion(Known(person, login.public_key, now_ns))], None

    await registry.write_decided(added)
    return login


async def remove_person(registry: Registry, clock: Clock, name: str) -> None:
    """Withdraw somebody's credentials in hub.db, for ever, and log their browsers out; servers are the caller's to tell.

    Raises:
        RightsError: there is nobody of that name.
        RegistryError: hub.db is not usable.
    """

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
