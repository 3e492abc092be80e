"""Commands that write to hub.db while the control plane does: neither puts back what the other wrote."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec.protocol.enrolment import request_subject, write_request
from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import add_device as enrol
from backhaul_hub.enrol import revoke as revoking
from backhaul_hub.enrol import rotate as rotating
from backhaul_hub.enrol.service import EnrolmentService
from backhaul_hub.errors import RegistryError
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.people import credentials as people_book
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.rows import Known, insertion, known_people, removal
from tests.hub.enrolling_hub import KEY, OTHER, Hub, S, _signed, code_of
from tests.support.hub_acts import add_person, begin_rotation, change_nodes, remove_person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path
    from types import ModuleType


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "hub")


@asynccontextmanager
async def beside(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, module: ModuleType, read: str
) -> AsyncIterator[list[Callable[[Registry], Awaitable[object]]]]:
    """Have a control plane do something between what a command reads last and what it writes.

    It waits for nobody: where hub.db is the command's, it gives up.
    """
    happens: list[Callable[[Registry], Awaitable[object]]] = []
    really_read = getattr(module, read)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        await registry._connection.execute("PRAGMA busy_timeout = 0")

        async def read_and_wait(*what: Any) -> Any:
            found = await really_read(*what)
            for each in happens:
                with suppress(RegistryError):
                    await each(registry)
            return found

        monkeypatch.setattr(module, read, read_and_wait)
        yield happens


async def test_who_is_enrolled_in_the_moment_of_being_revoked_is_shut_out(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await hub.token()
    asked = (request_subject(token.id), write_request(token.id, KEY))

    async def enrols(registry: Registry) -> None:
        service = EnrolmentService(registry, hub.documents, hub.clock, hub._learn)
        await service.answer(*asked)

    async with beside(hub, monkeypatch, revoking, "rotations") as happens:
        happens.append(enrols)
        await hub.revoke()
    assert code_of(await hub.ask(token)) == "revoked"
    assert [each.id for each in (await hub.devices()).values() if not each.revoked_ns] == []


def _ends_rotation(hub: Hub) -> Callable[[Registry], Awaitable[object]]:
    """Return what a control plane does that hears of a login with the new key."""

    async def ends(registry: Registry) -> None:
        await registry.write(
            [
                RowChange("UPDATE device SET public_key = ?", [(OTHER.public_key,)]),
                RowChange("UPDATE rotation SET state = 'done'", [()]),
                revoke(Revocation(KEY.public_key, "FLEET", "VID-001", hub.clock.now)),
            ]
        )
        device = (await read_devices(registry))["VID-001"]
        hub.documents.write(hub.documents.renew(device, now_s=hub.clock.now // S))

    return ends


async def test_of_two_keys_a_device_keeps_one_that_is_good_whenever_a_rotation_begins_anew(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hub.ask(await hub.token())
    await begin_rotation(hub.directory, hub.clock, "VID-001")
    async with beside(hub, monkeypatch, rotating, "rotations") as happens:
        async with await Registry.open(hub.directory / "hub.db") as registry:
            await registry.write([_signed("VID-001", OTHER.public_key)])
        happens.append(_ends_rotation(hub))
        await begin_rotation(hub.directory, hub.clock, "VID-001", again=True)
    assert not (await hub.devices())["VID-001"].revoked_ns


async def test_a_document_has_the_key_of_now_when_a_rotation_ends_while_nodes_are_given(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hub.ask(await hub.token())
    async with beside(hub, monkeypatch, enrol, "_drained") as happens:
        happens.append(_ends_rotation(hub))
        await change_nodes(hub.directory, hub.clock, "VID-001", ["gps"])
    device, document = (await hub.devices())["VID-001"], hub.documents.read("VID-001")
    assert (document.nodes, body_of(document.jwt)["sub"]) == (("gps",), device.public_key)


async def test_nobody_has_credentials_that_are_in_no_list_and_not_withdrawn(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two take the same person out, and one has added the person again at once."""
    again = Known(Person("ann", "fleet", May.READ), OTHER.public_key, 1)
    added: list[str] = []

    async def adds_again(registry: Registry) -> None:
        await registry.write([removal("ann"), insertion(again)])
        added.append("ann")

    target = hub.directory / "people" / "ann.creds"
    await add_person(hub.directory, hub.clock, again.person, target)
    async with beside(hub, monkeypatch, people_book, "known_people") as happens:
        happens.append(adds_again)
        await remove_person(hub.directory, hub.clock, "ann")
    async with await Registry.open(hub.directory / "hub.db") as registry:
        assert list(await known_people(registry)) == added
