"""With real servers: accounts are pushed by the one control plane that is alone, and never of an older hub.db (ADR 30)."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper, jwts_there, revoked_for_ever
from backhaul_hub.access.revocations import FOR_A_WHILE_S, revocations
from backhaul_hub.cli._act import done
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import HubError, OlderRegistryError
from backhaul_hub.health.conditions import REGISTRY_OLDER
from backhaul_hub.nats.jwt import generation_of, revocations_of
from backhaul_hub.people.identity import May, Person
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import add_person, create_device, remove_person, revoke_device
from tests.support.server_alone import server_alone
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.access.account_names import AccountName
    from tests.support.rig.parts import HubRig

pytestmark = pytest.mark.nats

CLOCK = SystemClock()
VID, OTHER = "VID-001", "VID-002"


class Scene:
    """A hub's server, its directory, and a copy of that from before VID was revoked."""

    def __init__(self, rig: HubRig, system: Client, stack: AsyncExitStack) -> None:
        self.rig = rig
        self.directory = rig.directory
        self.copy = rig.directory.with_name("copy")
        self.system = system
        self.keys = read_keys(rig.directory)
        self._stack = stack
        self.updates: list[bytes] = []

    async def make(self) -> None:
        """Add a vehicle and a person, copy the directory, and shut both out."""
        config = load(self.directory)
        for device in (VID, OTHER):
            await create_device(self.directory, config, CLOCK, device, DeviceSettings())
        await add_person(
            self.directory, CLOCK, Person("ann", "fleet", May.READ), self.directory / "ann"
        )
        shutil.copytree(self.directory, self.copy, ignore=shutil.ignore_patterns("jetstream"))
        await self.shut_out(self.directory, VID)
        await remove_person(self.directory, CLOCK, "ann")

    async def shut_out(self, directory: Path, device: str) -> str:
        return (await revoke_device(directory, load(directory), CLOCK, device)).public_key

    async def start(self, directory: Path) -> ControlPlane:
        plane = ControlPlane(directory, load(directory), CLOCK)
        running = asyncio.create_task(plane.run())

        async def end() -> None:
            plane.stop()
            await running

        self._stack.push_async_callback(end)
        await until(lambda: plane.reading.readers != [] or running.done())
        async with self.rig.connection() as client:
            while not running.done():  # it reads streams before it answers
                with suppress(NoRespondersError):
                    await client.request("hub.status", b"", timeout=30)
                    break
                await asyncio.sleep(0.02)
        return plane

    async def there(self, name: AccountName = "FLEET") -> str:
        [jwt] = await jwts_there(self.system, self.keys, name, 1)
        return jwt

    async def revoked(self, name: AccountName = "FLEET") -> set[str]:
        return revoked_for_ever(await self.there(name))

    async def keeper(self, directory: Path) -> AccountKeeper:
        opened = await Registry.open(directory / "hub.db")
        registry = await self._stack.enter_async_context(opened)
        return AccountKeeper(self.keys, registry, CLOCK)

    async def condition(self, code: str) -> dict[str, Any]:
        """Return a condition, once the control plane shows it."""
        async with self.rig.connection() as client, asyncio.timeout(60):
            while True:
                answer = await client.request("hub.status", b"", timeout=30)
                for each in json.loads(answer.data)["conditions"]:
                    if each["code"] == code:
                        found: dict[str, Any] = each
                        return found
                await asyncio.sleep(0.05)

    async def listen(self) -> None:
        """Note every account that anybody pushes from now on."""

        async def heard(message: object) -> None:
            self.updates.append(getattr(message, "data", b""))

        await self.system.subscribe("$SYS.REQ.CLAIMS.UPDATE", cb=heard)
        await self.system.flush()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(
        "backhaul_hub.nats.system_requests._WAIT_S", 60.0
    )  # for the one that there is
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(server_alone(tmp_path / "hub"))
        system = await rig.connect("system")
        stack.push_async_callback(system.close)
        made = Scene(rig, system, stack)
        await made.make()
        yield made


async def test_one_that_is_refused_pushes_nothing(scene: Scene) -> None:
    await scene.start(scene.directory)
    vehicles, people = await scene.revoked(), await scene.revoked("PEOPLE")
    assert vehicles
    assert people
    await scene.listen()
    with pytest.raises(HubError, match="another control plane"):
        await ControlPlane(scene.copy, load(scene.copy), CLOCK).run()
    await scene.system.flush()
    assert scene.updates == []
    assert await scene.revoked() == vehicles
    assert await scene.revoked("PEOPLE") == people


async def test_an_older_hub_db_alone_pushes_nothing_but_further_revocations_and_says_so(
    scene: Scene,
) -> None:
    keeper = await scene.keeper(scene.directory)
    assert set(await keeper.push(scene.system)) == {"FLEET", "PEOPLE"}
    vehicles = await scene.revoked()
    before = await scene.there()
    await scene.start(scene.copy)
    assert await scene.there() == before
    condition = await scene.condition(REGISTRY_OLDER)
    assert "account FLEET: generation 0 here, 1 at the servers" in condition["detail"]
    assert "account PEOPLE" in condition["detail"]
    assert "restore --from-streams" in condition["hint"]
    # A vehicle that is stolen meanwhile is shut out all the same, and the operator hears of the rest.
    stolen = await scene.shut_out(scene.copy, OTHER)
    said = await done(scene.copy, "reload", {})
    assert "this hub.db is older" in said["problem"]
    assert await scene.revoked() == vehicles | {stolen}
    assert generation_of(await scene.there()) == 1
    # The newest hub.db takes that over, and goes on from there.
    assert await keeper.push(scene.system) == ["FLEET"]
    assert await scene.revoked() == vehicles | {stolen}
    assert generation_of(await scene.there()) == 2
    assert {each.public_key for each in await revocations(keeper._registry)} > vehicles | {stolen}


async def test_a_command_in_a_copy_of_the_directory_is_carried_out_by_the_control_plane_that_runs(
    scene: Scene,
) -> None:
    """It leads, wherever that is: what the copy says is nobody's."""
    await scene.start(scene.directory)
    before = (scene.copy / "hub.db").read_bytes()
    said = await done(scene.copy, "revoke", {"device": OTHER})
    assert said["problem"] == ""
    assert said["public_key"] in await scene.revoked()
    assert not (scene.directory / "devices" / OTHER).joinpath("identity.json").exists()
    assert (scene.copy / "hub.db").read_bytes() == before


async def test_a_hub_db_that_says_the_same_is_no_older(scene: Scene) -> None:
    """Put back after something was changed and changed back: nothing is lost by it."""
    first = await scene.keeper(scene.directory)
    await first.push(scene.system)
    second = await scene.keeper(scene.copy)
    with pytest.raises(OlderRegistryError):
        await second.push(scene.system)
    await scene.shut_out(scene.copy, VID)
    await remove_person(scene.copy, CLOCK, "ann")
    assert await second.push(scene.system) == []
    assert second.older == ""
    assert generation_of(await scene.there()) == 1


async def test_a_flood_is_no_change_that_makes_a_hub_db_older(scene: Scene) -> None:
    keeper = await scene.keeper(scene.directory)
    await keeper.push(scene.system)
    await keeper.keep_out(scene.system, frozenset({OTHER}))
    assert FOR_A_WHILE_S in until_of(await scene.there())
    assert generation_of(await scene.there()) == 1
    # An older one keeps vehicles out, too, and lets them in again.
    older = await scene.keeper(scene.copy)
    for out in (frozenset({OTHER}), frozenset[str]()):
        with pytest.raises(OlderRegistryError):
            await older.keep_out(scene.system, out)
        assert (FOR_A_WHILE_S in until_of(await scene.there())) == bool(out)
    assert await keeper.push(scene.system) == ["FLEET"]


def until_of(jwt: str) -> set[int]:
    return set(revocations_of(jwt).values())
