"""Accounts are pushed by the one control plane that is alone, and never of an older hub.db (ADR 30)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.account_files import jwts_in_files, write_accounts
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper, revoked_for_ever
from backhaul_hub.access.revocations import Revocation, revocations
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.config import load
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.nats.jwt import generation_of
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import create_device, leave_for_servers, revoke_device
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from pathlib import Path


CLOCK = SystemClock()
VID, OTHER = "VID-001", "VID-002"


# Without a server.


async def test_a_hub_db_that_says_the_same_as_servers_and_less_than_the_log_goes_on(
    hub: Path,
) -> None:
    """As where a control plane was killed before it pushed, and an hub.db of before was put back."""
    config, keys = load(hub), read_keys(hub)
    key = (await create_device(hub, config, CLOCK, VID, DeviceSettings())).device.public_key
    shutil.copy(hub / "hub.db", hub / "older.db")
    await revoke_device(hub, config, CLOCK, VID)
    assert await leave_for_servers(hub, config, CLOCK)
    there = jwts_in_files(hub, keys)
    other = (await create_device(hub, config, CLOCK, OTHER, DeviceSettings())).device.public_key
    log = RevocationLog(hub, keys.operator_signing)
    log.add([Revocation(other, "FLEET", OTHER, 1)])
    shutil.copy(hub / "older.db", hub / "hub.db")
    await revoke_device(hub, config, CLOCK, VID)
    async with await Registry.open(hub / "hub.db") as registry:
        settled = await AccountKeeper(keys, registry, CLOCK, log=log).settle(there)
    assert settled.older == ""
    assert revoked_for_ever(settled.jwts["FLEET"]) == {key, other}
    assert generation_of(settled.jwts["FLEET"]) == 2


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    create_hub(tmp_path / "hub", local_layout(4, 7))
    return tmp_path / "hub"


async def test_accounts_that_are_left_for_servers_shut_out_whom_they_shut_out_before(
    hub: Path,
) -> None:
    """`revoke` without a server, of a hub.db that was put back."""
    config, keys = load(hub), read_keys(hub)
    first = (await create_device(hub, config, CLOCK, VID, DeviceSettings())).device.public_key
    second = (await create_device(hub, config, CLOCK, OTHER, DeviceSettings())).device.public_key
    shutil.copy(hub / "hub.db", hub / "older.db")
    await revoke_device(hub, config, CLOCK, VID)
    assert await leave_for_servers(hub, config, CLOCK)
    shutil.copy(hub / "older.db", hub / "hub.db")
    (hub / "keys/revocations.jsonl").unlink()
    await revoke_device(hub, config, CLOCK, OTHER)
    assert await leave_for_servers(hub, config, CLOCK)
    [fleet] = jwts_in_files(hub, keys)["FLEET"]
    assert revoked_for_ever(fleet) == {first, second}


async def test_what_the_log_holds_is_shut_out_where_hub_db_and_accounts_are_lost(
    hub: Path,
) -> None:
    config, keys = load(hub), read_keys(hub)
    fresh = {name: jwts[0] for name, jwts in jwts_in_files(hub, keys).items()}
    key = (await create_device(hub, config, CLOCK, VID, DeviceSettings())).device.public_key
    await revoke_device(hub, config, CLOCK, VID)
    assert await leave_for_servers(hub, config, CLOCK)
    for path in hub.glob("hub.db*"):
        path.unlink()
    write_accounts(hub, keys, fresh)
    async with await Registry.open(hub / "hub.db") as registry:
        log = RevocationLog(hub, keys.operator_signing)
        settled = await AccountKeeper(keys, registry, CLOCK, log=log).settle(
            jwts_in_files(hub, keys)
        )
        assert settled.older == ""
        assert revoked_for_ever(settled.jwts["FLEET"]) == {key}
        [row] = await revocations(registry)
        assert (row.public_key, row.name) == (key, VID)
