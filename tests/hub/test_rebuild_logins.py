"""A rebuilt hub.db learns devices and keys from the logins of vehicles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from nats.errors import OutboundBufferLimitError

from backhaul_hub.access.key_rotations import Rotation
from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.access.revocations import Revocation, revocations, revoke
from backhaul_hub.db.devices import add_device, read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.enrol import adopter
from backhaul_hub.enrol.adopter import Adopter
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jwt import body_of
from tests.hub.rebuilt_hub import CLOCK, KEY, NEXT, VID, Hub, hub
from tests.support.waiting import until

__all__ = ["hub"]  # a fixture

# Logins.


class Logins:
    """An adopter, and what it is told."""

    def __init__(self, hub: Hub, registry: Registry) -> None:
        self.hub, self.registry = hub, registry
        self.rotations: dict[str, Rotation] = {}
        self.devices: dict[str, Device] = {}
        self.adopter = Adopter(
            *(registry, CLOCK, lambda: self.devices, lambda: self.rotations, self.learn)
        )

        self.trouble: list[Exception] = []
        self.learned = 0

    async def learn(self) -> None:
        if self.trouble:
            raise self.trouble.pop()
        self.learned += 1

    async def act(self, device: Device) -> bool:
        self.adopter.heard(body_of(vehicle_jwt(self.hub.keys, device, now_s=1)))
        return await self.adopter.act()


@pytest.fixture
async def logins(hub: Hub) -> Any:
    async with await Registry.open(hub.directory / "hub.db") as registry:
        yield Logins(hub, registry)


LOGIN = Device(VID, "aa11aa11aa11aa11aa11aa11", KEY, 0, ("gps",))


async def test_a_device_that_hub_db_does_not_know_is_taken_in_by_its_login(logins: Logins) -> None:
    assert await logins.act(LOGIN)
    found = (await read_devices(logins.registry))[VID]
    assert (found.token, found.public_key, found.nodes) == (
        "aa11aa11aa11aa11aa11aa11",
        KEY,
        ("gps",),
    )
    assert not await logins.act(LOGIN)


@pytest.mark.parametrize("former", ["?VID-001", NEXT])
async def test_a_device_whose_key_is_unknown_or_former_has_that_of_its_login(
    logins: Logins, former: str
) -> None:
    await add_device(logins.registry, Device(VID, "old", former, 5, ("battery",)))
    assert await logins.act(LOGIN)
    found = (await read_devices(logins.registry))[VID]
    nodes = ("gps",) if former.startswith("?") else ("battery",)
    assert (found.token, found.public_key, found.nodes) == ("aa11aa11aa11aa11aa11aa11", KEY, nodes)


async def test_what_could_not_be_learnt_of_is_learnt_of_later(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hub.db has the device by then, and nothing more is to be written."""
    monkeypatch.setattr(adopter, "_RETRY_S", 0.001)
    logins.trouble = [OutboundBufferLimitError(), HubError("no answer")]
    running = asyncio.create_task(logins.adopter.run())
    logins.adopter.heard(body_of(vehicle_jwt(logins.hub.keys, LOGIN, now_s=1)))
    await until(lambda: running.done() or logins.learned > 0, deadline_s=10.0)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    assert logins.learned == 1


async def test_hub_db_is_not_asked_of_logins_by_keys_that_are_known(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a server has started a whole fleet logs in, and hub.db is read whole for each login."""
    asked = 0
    decided = logins.registry.write_decided

    async def counted(decide: Any) -> Any:
        nonlocal asked
        asked += 1
        return await decided(decide)

    monkeypatch.setattr(logins.registry, "write_decided", counted)
    logins.devices = {VID: LOGIN}
    assert not await logins.act(LOGIN)
    assert asked == 0
    logins.devices = {VID: replace(LOGIN, public_key=NEXT)}
    assert await logins.act(LOGIN)
    assert asked == 1


async def test_a_revoked_device_is_not_taken_in(logins: Logins) -> None:
    await add_device(logins.registry, Device(VID, "old", NEXT, 5))
    await logins.registry.write([revoke(Revocation(NEXT, "FLEET", VID, 1))])
    assert not await logins.act(LOGIN)
    assert (await read_devices(logins.registry))[VID].public_key == NEXT


async def test_a_revoked_key_is_not_taken_in(logins: Logins) -> None:
    """A server that was just started lets it in for a moment."""
    await logins.registry.write([revoke(Revocation(KEY, "FLEET", VID, 1))])
    assert not await logins.act(LOGIN)
    assert await read_devices(logins.registry) == {}


async def test_a_device_that_was_revoked_before_its_key_was_known_is_revoked_with_it(
    logins: Logins,
) -> None:
    await add_device(logins.registry, Device(VID, "old", "?VID-001", 5))
    await logins.registry.write([revoke(Revocation("?VID-001", "FLEET", VID, 1))])
    assert await logins.act(LOGIN)
    assert KEY in {each.public_key for each in await revocations(logins.registry)}
    assert (await read_devices(logins.registry))[VID].revoked_ns


async def test_a_rotation_that_is_under_way_is_left_alone(logins: Logins) -> None:
    await add_device(logins.registry, Device(VID, "aa11aa11aa11aa11aa11aa11", NEXT, 5))
    logins.rotations[VID] = Rotation(VID, "r", "written", 0, KEY, NEXT)
    assert not await logins.act(LOGIN)
    logins.rotations[VID] = Rotation(VID, "r", "done", 0, KEY, NEXT)
    assert await logins.act(LOGIN)


async def test_a_login_without_a_token_is_of_no_device(logins: Logins) -> None:
    logins.adopter.heard({"name": VID, "sub": KEY, "nats": {"tags": []}})
    assert not await logins.adopter.act()
