"""What a lost hub.db is noticed by and rebuilt from, and what a login tells of a vehicle. Without a server."""

from __future__ import annotations

import pytest

from backhaul_hub.access.generations import generations
from backhaul_hub.access.revocations import Revocation, revocations
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.backup.last_backup import LastBackup, last_backup, note_backup
from backhaul_hub.backup.lost_registry import FORMER
from backhaul_hub.backup.traces import Traces, traces_in_files
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import LostRegistryError
from backhaul_hub.links.down_consumers import device_of_durable
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.rows import known_people
from tests.hub.rebuilt_hub import CLOCK, KEY, NEXT, OTHER, THIRD, VID, Hub, hub
from tests.support.hub_acts import add_person, remove_person

__all__ = ["hub"]  # a fixture


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
    hub.server.messages = {f"up.{VID}.f.bulk": 3, f"up.{VID}.e.app.x": 4} if trace == "UP" else {}
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
    hub.server.messages = {f"up.{VID}.f.bulk": 3, f"up.{OTHER}.f.bulk": 2, "up.VID-004.x": 1}
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
    hub.server.messages = {f"up.{VID}.x": 1, f"up.{OTHER}.x": 1}
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
