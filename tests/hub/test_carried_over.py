"""A hub.db that comes back from a backup lets nobody in again who was shut out since."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.account_files import jwts_in_files, write_accounts
from backhaul_hub.access.key_rotations import logged_in, put, rotations
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper, revoked_for_ever
from backhaul_hub.access.revocations import (
    FOR_EVER_S,
    Revocation,
    in_force,
    revocations,
    revoke,
)
from backhaul_hub.backup.carry_revocations import CarriedOver, carry_over
from backhaul_hub.backup.files import copy_database, fold_log
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import BackupError
from backhaul_hub.nats.jwt import generation_of
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.rows import known_people
from tests.hub.enrolling_hub import KEY, OTHER, Hub, _signed, code_of
from tests.support.enrolment_tokens import user_key
from tests.support.hub_acts import add_person, begin_rotation, remove_person

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.access.keys import HubKeys
    from backhaul_hub.backup.carry_revocations import Revoked

VID, LATER = "VID-001", "VID-002"
THIRD = user_key(3)
NOTHING = CarriedOver()


def revoked_in_files(directory: Path, keys: HubKeys) -> Revoked:
    """Return the keys that are shut out for ever by the accounts that servers read at their start."""
    return {
        name: set().union(*map(revoked_for_ever, jwts))
        for name, jwts in jwts_in_files(directory, keys).items()
    }


class Backed(Hub):
    """A hub of which a backup is taken, and put back."""

    async def backup(self) -> None:
        copy_database(self.directory / "hub.db", self.directory / "backup.db")

    async def restore(self, revoked: Revoked | None = None, *, former: bool = True) -> CarriedOver:
        """Put hub.db back as `restore` does, with the former one beside it or not."""
        path, aside = self.directory / "hub.db", self.directory / "hub.db.before-restore"
        fold_log(path)
        path.replace(aside)
        if not former:
            aside.unlink()
        shutil.copy(self.directory / "backup.db", path)
        async with await Registry.open(path) as registry:
            return await carry_over(registry, revoked or {}, aside, self.clock.now)

    async def at_servers(self) -> Revoked:
        """Return who is shut out as servers have it that were told last."""
        keys = read_keys(self.directory)
        async with await Registry.open(self.directory / "hub.db") as registry:
            jwts = await AccountKeeper(keys, registry, self.clock).build()
        write_accounts(self.directory, keys, jwts)
        return revoked_in_files(self.directory, keys)

    async def keys_out(self) -> set[str]:
        async with await Registry.open(self.directory / "hub.db") as registry:
            return {each.public_key for each in await revocations(registry)}

    async def rotate(self) -> None:
        """Have the device log in with another key."""
        await begin_rotation(self.directory, self.clock, VID)
        async with await Registry.open(self.directory / "hub.db") as registry:
            await registry.write([_signed(VID, OTHER.public_key)])

    async def rotated(self) -> None:
        """Note that it has, as the control plane does."""
        async with await Registry.open(self.directory / "hub.db") as registry:
            done = logged_in((await rotations(registry))[VID], OTHER.public_key, 1)
            assert done is not None
            change = RowChange("UPDATE device SET public_key = ?", [(OTHER.public_key,)])
            old = revoke(Revocation(KEY.public_key, "FLEET", VID, 1))
            await registry.write([change, old, put(done)])


@pytest.fixture
def hub(tmp_path: Path) -> Backed:
    return Backed(tmp_path / "hub")


@pytest.mark.parametrize("former", [True, False], ids=["hub.db there", "hub.db lost"])
async def test_who_was_revoked_since_stays_out(hub: Backed, former: bool) -> None:
    """Servers know, also where the hub.db that knew it is lost."""
    await hub.ask(await hub.token())
    await hub.backup()
    await hub.revoke()
    told = await hub.at_servers()
    assert await hub.restore(told, former=former) == CarriedOver(1, (VID,))
    assert (await hub.devices())[VID].revoked_ns
    assert await hub.at_servers() == told
    assert await hub.restore({}) == CarriedOver(1, (VID,)), "by the former hub.db alone"


async def test_what_the_backup_knows_is_not_told_twice(hub: Backed) -> None:
    await hub.ask(await hub.token())
    await hub.revoke()
    await hub.backup()
    assert await hub.restore(await hub.at_servers()) == NOTHING
    assert await hub.keys_out() == {KEY.public_key}


@pytest.mark.parametrize("former", [True, False], ids=["hub.db there", "hub.db lost"])
async def test_a_device_that_had_another_key_since_is_not_shut_out(
    hub: Backed, former: bool
) -> None:
    await hub.ask(await hub.token())
    if not former:
        await hub.rotate()  # then the backup alone can tell, where the key was signed already
    await hub.backup()
    if former:
        await hub.rotate()
    await hub.rotated()
    assert await hub.restore(await hub.at_servers(), former=former) == CarriedOver(1)
    device = (await hub.devices())[VID]
    assert (device.public_key, device.revoked_ns) == (OTHER.public_key, 0)
    assert await hub.keys_out() == {KEY.public_key}
    async with await Registry.open(hub.directory / "hub.db") as registry:
        assert await rotations(registry) == {}, "one that is done is not gone on with"


async def test_a_device_that_was_enrolled_anew_since_is_said_to_be_out(hub: Backed) -> None:
    await hub.ask(await hub.token())
    await hub.backup()
    await hub.revoke()
    await hub.ask(await hub.token(), OTHER)
    assert await hub.restore(await hub.at_servers()) == CarriedOver(1, (VID,))
    assert code_of(await hub.ask(await hub.token())) == "old_key"
    await hub.ask(await hub.token(), THIRD)
    assert not (await hub.devices())[VID].revoked_ns


async def test_withdrawn_credentials_stay_so(hub: Backed) -> None:
    for name in ("ann", "bob"):
        person = Person(name, "fleet", May.READ)
        await add_person(hub.directory, hub.clock, person, hub.directory / name)
    await hub.backup()
    await remove_person(hub.directory, hub.clock, "ann")
    assert await hub.restore(await hub.at_servers(), former=False) == CarriedOver(
        1, people=("ann",)
    )
    async with await Registry.open(hub.directory / "hub.db") as registry:
        assert list(await known_people(registry)) == ["bob"]


async def test_people_who_were_added_since_stay_in_the_list(hub: Backed) -> None:
    async def add(name: str, group: str) -> None:
        person = Person(name, group, May.READ)
        await add_person(hub.directory, hub.clock, person, hub.directory / name)

    await hub.ask(await hub.token())
    await add("ann", "fleet")
    await hub.backup()
    await remove_person(hub.directory, hub.clock, "ann")
    await add("ann", VID)
    await add("bob", VID)
    assert await hub.restore() == CarriedOver(1, people=("ann",))
    async with await Registry.open(hub.directory / "hub.db") as registry:
        people = await known_people(registry)
    assert [(name, each.person.group) for name, each in people.items()] == [
        ("ann", VID), ("bob", VID),
    ]  # fmt: skip


async def test_who_was_withdrawn_is_not_put_in_the_list_again(hub: Backed) -> None:
    """The hub.db that was put aside may be an earlier restore's, and the last one lost."""
    await hub.ask(await hub.token())
    await hub.backup()
    person = Person("ann", "fleet", May.READ)
    await add_person(hub.directory, hub.clock, person, hub.directory / "ann")
    copy_database(hub.directory / "hub.db", hub.directory / "earlier.db")
    await remove_person(hub.directory, hub.clock, "ann")
    told = await hub.at_servers()
    shutil.copy(hub.directory / "earlier.db", hub.directory / "hub.db")
    assert await hub.restore(told) == CarriedOver(1)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        assert await known_people(registry) == {}


async def test_a_token_that_was_open_is_void_and_says_why(hub: Backed) -> None:
    token = await hub.token()
    await hub.ask(await hub.token(device=LATER), OTHER)
    await hub.backup()
    await hub.ask(token)
    assert await hub.restore() == CarriedOver(tokens=(VID,))
    async with hub.service() as service:
        del service
        refused = await hub.ask(token, THIRD)
    assert code_of(refused) == "replaced"
    assert "this hub was put back from a backup at" in str(refused)
    assert await hub.restore() == CarriedOver(tokens=(VID,))


async def test_who_is_kept_out_for_a_flood_is_not_revoked_by_a_restore(hub: Backed) -> None:
    await hub.ask(await hub.token())
    await hub.ask(await hub.token(device=LATER), OTHER)
    await hub.backup()
    await hub.revoke(LATER)
    keys = read_keys(hub.directory)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        keeper = AccountKeeper(keys, registry, hub.clock)
        keeper._kept_out = frozenset({VID, LATER})
        write_accounts(hub.directory, keys, await keeper.build())
    assert revoked_in_files(hub.directory, keys)["FLEET"] == {OTHER.public_key}


async def test_a_key_is_shut_out_for_ever_where_both_is_said(hub: Backed) -> None:
    await hub.ask(await hub.token())
    keys = read_keys(hub.directory)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        keeper = AccountKeeper(keys, registry, hub.clock)
        keeper._kept_out = frozenset({VID})
        revoked = await keeper._revoked(0, {"FLEET": {KEY.public_key}})
        assert in_force(await revocations(registry), 0) == {}
    assert revoked == {"FLEET": {KEY.public_key: FOR_EVER_S}}


async def test_a_former_hub_db_that_cannot_be_read_is_not_passed_over(hub: Backed) -> None:
    await hub.ask(await hub.token())
    await hub.backup()
    aside = hub.directory / "hub.db.before-restore"
    aside.write_bytes(b"no database" * 1000)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        with pytest.raises(BackupError, match="who was shut out since the backup"):
            await carry_over(registry, {}, aside, hub.clock.now)


def test_accounts_that_are_none_shut_nobody_out(hub: Backed) -> None:
    keys = read_keys(hub.directory)
    write_accounts(hub.directory, keys, {"FLEET": "", "HUB": "a.b.c"})
    assert not any(revoked_in_files(hub.directory, keys).values())


async def test_a_hub_db_that_was_put_back_is_no_older_than_the_servers(hub: Backed) -> None:
    """Else nothing of it would ever reach the accounts again."""
    await hub.ask(await hub.token())
    await hub.backup()
    keys = read_keys(hub.directory)
    async with await Registry.open(hub.directory / "hub.db") as registry:
        keeper = AccountKeeper(keys, registry, hub.clock)
        fresh = jwts_in_files(hub.directory, keys)
        there = fresh
        for number in (2, 3):
            await registry.write([revoke(Revocation(user_key(number).public_key, "FLEET", VID, 1))])
            settled = await keeper.settle(fresh)
            there = {name: [jwt] for name, jwt in settled.jwts.items()}
    [fleet] = there["FLEET"]
    assert generation_of(fleet) == 2
    former = hub.directory / "nowhere"
    shutil.copy(hub.directory / "backup.db", hub.directory / "hub.db")
    async with await Registry.open(hub.directory / "hub.db") as registry:
        keeper = AccountKeeper(keys, registry, hub.clock)
        assert (await keeper.settle(there)).older
        await carry_over(registry, {"FLEET": revoked_for_ever(fleet)}, former, 1, {"FLEET": 2})
        assert (await keeper.settle(there)).jwts["FLEET"] == fleet
        await registry.write([revoke(Revocation(KEY.public_key, "FLEET", VID, 1))])
        settled = await keeper.settle(there)
        assert (settled.older, generation_of(settled.jwts["FLEET"])) == ("", 3)
