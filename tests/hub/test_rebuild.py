"""What a lost hub.db is noticed by and rebuilt from, and what a login tells of a vehicle. Without a server."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import OutboundBufferLimitError

from backhaul_hub.access.generations import generations
from backhaul_hub.access.key_rotations import Rotation
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.access.revocation_log import RevocationLog
from backhaul_hub.access.revocations import Revocation, revocations, revoke
from backhaul_hub.backup.last_backup import LastBackup, last_backup, note_backup
from backhaul_hub.backup.lost_registry import FORMER, require_registry
from backhaul_hub.backup.rebuild import Rebuilt, rebuild
from backhaul_hub.backup.traces import Traces, traces, traces_in_files
from backhaul_hub.config import load
from backhaul_hub.db.devices import add_device, read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.enrol import adopter
from backhaul_hub.enrol.add_device import DeviceSettings, create_device
from backhaul_hub.enrol.adopter import Adopter
from backhaul_hub.enrol.revoke import leave_for_servers, revoke_device
from backhaul_hub.errors import HubError, LostRegistryError
from backhaul_hub.links.down_consumers import device_of_durable
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.people.credentials import add_person, remove_person
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.rows import known_people
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.enrolment_tokens import user_key
from tests.support.hub_layout import local_layout
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from backhaul_hub.access.account_names import AccountName
    from backhaul_hub.nats.jetstream import Json

CLOCK = SystemClock()
VID, OTHER, THIRD = "VID-001", "VID-002", "VID-003"
KEY, NEXT = user_key(1).public_key, user_key(2).public_key


class Server:
    """A server's streams, as far as they are asked for."""

    def __init__(self) -> None:
        self.durables: list[str] = []
        self.sources: list[Json] = []
        self.subjects: dict[str, int] = {}
        self.asked = 0
        """How often it was asked what UP holds."""

    async def stream_info(self, stream: str) -> Json | None:
        return {} if stream == "DOWN_00" else None

    async def request(
        self, verb: str, body: Any = None, *, api: str = "", timeout_s: float | None = None
    ) -> Json:
        if verb == "STREAM.NAMES":
            found = ["UP_00", "RELAY_00"] if api else ["DOWN_00"]
            return {"streams": found, "total": len(found)}
        if verb == "CONSUMER.NAMES.DOWN_00":
            return {"consumers": self.durables, "total": len(self.durables)}
        assert body == {"subjects_filter": "up.>", "offset": 0}
        if verb == "STREAM.INFO.RELAY_00":
            return {"config": {"sources": self.sources}, "state": {}}
        assert verb == "STREAM.INFO.UP_00"
        self.asked += 1
        return {"config": {"sources": []}, "state": {"subjects": self.subjects}}


class Hub:
    """A hub directory without a server."""

    def __init__(self, directory: Path) -> None:
        create_hub(directory, local_layout(4, 7))
        self.directory = directory
        self.config = load(directory)
        self.keys = read_keys(directory)
        self.server = Server()

    async def add(self, device: str, *nodes: str) -> Device:
        settings = DeviceSettings(nodes=nodes)
        return (await create_device(self.directory, self.config, CLOCK, device, settings)).device

    async def revoke(self, device: str) -> None:
        await revoke_device(self.directory, self.config, CLOCK, device)
        assert await leave_for_servers(self.directory, self.config, CLOCK)

    def lose(self) -> None:
        for path in self.directory.glob("hub.db*"):
            path.unlink()

    async def require(self, shut_out: Mapping[AccountName, set[str]] | None = None) -> None:
        api: Any = self.server
        async with await Registry.open(self.directory / "hub.db") as registry:
            await require_registry(self.directory, self.keys, registry, api, shut_out or {})

    async def rebuild(
        self, held: Mapping[AccountName, int] | None = None, **shut_out: set[str]
    ) -> Rebuilt:
        api: Any = self.server
        found = await traces(self.directory, self.keys, api)
        found.shut_out = shut_out  # type: ignore[assignment]
        async with await Registry.open(self.directory / "hub.db") as registry:
            return await rebuild(registry, found, held or {}, 7, lambda: secrets.token_hex(12))

    async def devices(self) -> dict[str, Device]:
        async with await Registry.open(self.directory / "hub.db") as registry:
            return await read_devices(registry)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "hub")


# Noticing.


async def test_a_new_hub_and_one_that_knows_its_devices_are_not_refused(hub: Hub) -> None:
    await hub.require()
    assert hub.server.asked == 1
    device = await hub.add(VID)
    hub.server.durables = [f"{VID}-{device.token}", f"{OTHER}-bb22bb22bb22bb22bb22bb22"]
    await hub.require()
    assert hub.server.asked == 1, "one that knows its devices is not looked through"
    await hub.revoke(VID)
    await hub.require()


@pytest.mark.parametrize("trace", ["document", "durable", "UP", "source"])
async def test_any_trace_of_a_device_is_one_too_many(hub: Hub, trace: str) -> None:
    if trace == "document":
        await hub.add(VID)
    hub.server.durables = (
        [f"{VID}-aa11aa11aa11aa11aa11aa11", "somebody's"] if trace == "durable" else ["somebody's"]
    )
    hub.server.subjects = {f"up.{VID}.f.bulk": 3, f"up.{VID}.e.app.x": 4} if trace == "UP" else {}
    if trace == "source":
        source = {"name": "OUT_bulk", "external": {"api": f"$JS.{VID}.API"}}
        hub.server.sources = [source | {"consumer": {"name": "aa11aa11aa11aa11aa11aa11"}}]
    hub.lose()
    with pytest.raises(LostRegistryError, match=VID) as refused:
        await hub.require()
    assert f"({trace})" in refused.value.message
    assert refused.value.exit_status == 4
    if trace == "UP":
        assert "UP holds 7 messages" in refused.value.message
    if trace != "document":
        # Another vehicle, added since, is none of those that there were.
        await hub.add(THIRD)
        with pytest.raises(LostRegistryError, match=VID):
            await hub.require()


async def test_whom_servers_or_the_log_shut_out_is_a_trace_too(hub: Hub) -> None:
    with pytest.raises(LostRegistryError, match="1 keys are revoked"):
        await hub.require({"PEOPLE": {KEY}})
    await hub.add(VID)
    await hub.revoke(VID)
    hub.lose()
    with pytest.raises(LostRegistryError, match="1 keys are revoked"):
        await hub.require()


async def test_a_backup_with_devices_is_named_in_what_is_to_be_done(hub: Hub) -> None:
    note_backup(hub.directory, LastBackup("/backup/1", "2026-11-21", 0))
    await hub.require()
    note_backup(hub.directory, LastBackup("/backup/2", "2026-11-22", 3))
    with pytest.raises(LostRegistryError, match="of 2026-11-22 has 3 devices") as refused:
        await hub.require()
    assert "restore --from-streams" in refused.value.hint
    assert "restore /backup/2 --replace" in refused.value.hint
    (hub.directory / "last-backup.json").write_text("{")
    assert last_backup(hub.directory) is None
    await hub.require()
    (hub.directory / FORMER).touch()
    with pytest.raises(LostRegistryError, match=FORMER):
        await hub.require()


# Rebuilding.


async def test_all_that_traces_say_comes_back(hub: Hub) -> None:
    first = await hub.add(VID, "gps")
    await hub.add(OTHER)
    people = {}
    for name, may in (("ann", May.READ), ("bob", May.COMMAND)):
        people[name] = Person(name, VID, may)
        place = hub.directory / "people" / f"{name}.creds"
        await add_person(hub.directory, CLOCK, people[name], place)
    await remove_person(hub.directory, CLOCK, "ann")
    await hub.revoke(OTHER)
    hub.server.durables = [
        f"{THIRD}-cc33cc33cc33cc33cc33cc33",
        f"{THIRD}-cc33cc33cc33cc33cc33cc33_n_gps",
        f"{VID}-{first.token}",
    ]
    hub.server.subjects = {f"up.{VID}.f.bulk": 3, f"up.{OTHER}.f.bulk": 2, "up.VID-004.x": 1}
    hub.lose()
    rebuilt = await hub.rebuild({"FLEET": 5}, FLEET={NEXT})
    assert [(each.device, each.state, each.messages) for each in rebuilt.devices] == [
        (VID, "rebuilt", 3), (OTHER, "revoked", 2), (THIRD, "key unknown", 0),
        ("VID-004", "not enrolled", 1),
    ]  # fmt: skip
    assert (rebuilt.people, rebuilt.revoked, rebuilt.unreadable) == (("bob",), 3, ())
    devices = await hub.devices()
    assert (devices[VID].token, devices[VID].public_key) == (first.token, first.public_key)
    assert devices[VID].nodes == ("gps",)
    assert devices[OTHER].revoked_ns
    assert (devices[THIRD].token, devices[THIRD].nodes) == ("cc33cc33cc33cc33cc33cc33", ("gps",))
    assert devices[THIRD].public_key == f"?{THIRD}"
    async with await Registry.open(hub.directory / "hub.db") as registry:
        assert (await generations(registry))["FLEET"].number == 5
        assert {name: each.person for name, each in (await known_people(registry)).items()} == {
            "bob": people["bob"]
        }
        assert NEXT in {each.public_key for each in await revocations(registry)}
    await hub.require()
    again = await hub.rebuild({"FLEET": 5}, FLEET={NEXT})
    assert (again.people, again.revoked) == ((), 0)
    assert [each.state for each in again.devices] == ["known", "revoked", "known", "known"]
    assert await hub.devices() == devices


async def test_where_documents_are_lost_a_durable_says_that_a_device_is_not_revoked(
    hub: Hub,
) -> None:
    """The log has the keys that a vehicle has had before, too."""
    log = RevocationLog(hub.directory, hub.keys.operator_signing)
    log.add([Revocation(KEY, "FLEET", VID, 1), Revocation(NEXT, "FLEET", OTHER, 1)])
    hub.server.durables = [f"{VID}-aa11aa11aa11aa11aa11aa11"]
    hub.server.subjects = {f"up.{VID}.x": 1, f"up.{OTHER}.x": 1}
    rebuilt = await hub.rebuild()
    assert [each.state for each in rebuilt.devices] == ["key unknown", "revoked"]
    assert (await hub.devices())[OTHER].public_key == NEXT


async def test_what_cannot_be_read_is_named_and_keeps_nobody_else_out(hub: Hub) -> None:
    await hub.add(VID)
    await hub.add(OTHER)
    (hub.directory / "devices" / OTHER / "identity.json").write_text("{" + "[" * 5000)
    (hub.directory / "people").mkdir()
    (hub.directory / "people/ann.creds").write_bytes(b"\xff")
    hub.lose()
    found = traces_in_files(hub.directory, hub.keys)
    assert found.devices.keys() == {VID}
    assert len(found.unreadable) == 2
    assert len((await hub.rebuild()).unreadable) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VID-001-aa11aa11aa11aa11aa11aa11", ("VID-001", "aa11aa11aa11aa11aa11aa11", "")),
        ("VID-001_n_x-aa11aa11aa11aa11aa11aa11", ("VID-001_n_x", "aa11aa11aa11aa11aa11aa11", "")),
        ("VID-001-aa11aa11aa11aa11aa11aa11_n_gps", ("VID-001", "aa11aa11aa11aa11aa11aa11", "gps")),
        (
            "VID-001-aa11aa11aa11aa11aa11aa11_n_a%2Eb",
            ("VID-001", "aa11aa11aa11aa11aa11aa11", "a.b"),
        ),
        ("VID-001-aa11aa11aa11aa11aa11aa11_n_a%zz", None),
        ("VID-001-0123LkqZ7pXw4TgYd", ("VID-001", "0123LkqZ7pXw4TgYd", "")),
        ("VID-001-0123LkqZ7pXw4TgYd_n_gps", ("VID-001", "0123LkqZ7pXw4TgYd", "gps")),
        (
            "VID-1HGBH41JXMN109186-0123LkqZ7pXw4TgYd",
            ("VID-1HGBH41JXMN109186", "0123LkqZ7pXw4TgYd", ""),
        ),
        ("VID-1HGBH41JXMN109186_n_x", None),
        ("-x-aa11aa11aa11aa11aa11aa11", None),
        ("somebody's", None),
    ],
)
def test_whose_a_durable_is(name: str, expected: tuple[str, str, str] | None) -> None:
    assert device_of_durable(name) == expected


def test_nobody_is_shut_out_where_nobody_says_so() -> None:
    assert Traces().keys_shut_out == set()


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
