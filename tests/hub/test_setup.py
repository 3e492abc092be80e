"""What a device is given fits what the hub lets it do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from backhaul_codec.protocol.credentials import parse_credentials
from backhaul_codec.protocol.identity import Identity, LinkCapacity, decode_identity
from backhaul_codec.ranges import RangeSet
from backhaul_hub.access.keys import read_keys, write_keys
from backhaul_hub.access.logins import add_later_logins
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.config import load
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import ConfigError, RegistryError
from backhaul_hub.lane_names import lanes_of
from backhaul_hub.lane_records.lane_rows import ReadPosition, store_read
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.nats.nkey import read_key
from backhaul_hub.servers import ServerPlace
from backhaul_hub.setup.hub_directory import create_hub
from tests.hub.layouts import FixedClock, layout
from tests.support.hub_acts import change_nodes, create_device

if TYPE_CHECKING:
    from pathlib import Path


def settings(*nodes: str) -> DeviceSettings:
    return DeviceSettings(link_kbit_s=20.0, link_mode="scheduled", nodes=nodes)


def identity_of(hub: Path, device: str = "VID-001") -> Identity:
    return decode_identity((hub / "devices" / device / "identity.json").read_bytes())


def tags_of(identity: Identity) -> list[str]:
    """Return what the server puts in the template's place for this device."""
    tags: list[str] = body_of(identity.jwt)["nats"]["tags"]
    return tags


async def test_a_devices_document_is_its_own(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    for device in ("VID-001", "VID-002"):
        await create_device(hub, load(hub), FixedClock(), device, settings())
    made = hub / "devices" / "VID-001"
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o600}
    identity = identity_of(hub)
    token = identity.token
    assert len(token) == 17
    assert (identity.device, identity.down_stream) == ("VID-001", "DOWN_00")
    assert identity.link == LinkCapacity("scheduled", 20.0)
    assert identity_of(hub, "VID-002").token != token

    assert (hub / "hub.db").stat().st_mode & 0o777 == 0o600
    assert hub.stat().st_mode & 0o777 == 0o700
    assert identity.leaf_urls == ("nats-leaf://hub.example.org:7422",)
    assert tags_of(identity) == [f"tok:{token}"]
    login = body_of(identity.jwt)
    async with await Registry.open(hub / "hub.db") as registry:
        known = (await read_devices(registry))["VID-001"]
    assert login["sub"] == known.public_key == read_key(identity.seed).public
    assert login["iss"] == read_keys(hub).vehicles.public
    assert (login["name"], login["iat"]) == ("VID-001", 1_700_000_000)
    assert identity.seed.encode() not in (hub / "hub.db").read_bytes(), "the hub forgets it"


def test_a_hub_from_before_the_twin_job_gets_its_login_and_the_same_key_each_time(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    assert not add_later_logins(hub, read_keys(hub), now_s=1)
    toml = hub / "hub.toml"
    lines = toml.read_text().splitlines()
    toml.write_text(
        "\n".join(line for line in lines if not line.startswith(("twin = ", "history = ")))
    )
    for user in ("twin", "history"):
        (hub / f"keys/account-{user}.nk").unlink()
        (hub / f"creds/{user}.creds").unlink()
    (hub / "creds/page.creds").unlink()
    keys = read_keys(hub)
    assert keys == read_keys(hub)
    made = {keys.account(name).public for name in ("HUB", "TWIN", "HISTORY")}
    assert len(made) == 3
    assert add_later_logins(hub, keys, now_s=1) == ["twin", "history", "page"]
    login = parse_credentials((hub / "creds" / "twin.creds").read_text())
    assert body_of(login.jwt)["iss"] == keys.account("TWIN").public
    login = parse_credentials((hub / "creds" / "history.creds").read_text())
    assert body_of(login.jwt)["iss"] == keys.account("HISTORY").public
    assert load(hub).nats.twin.creds == str(hub / "creds" / "twin.creds")
    write_keys(tmp_path / "moved", keys)
    assert read_keys(tmp_path / "moved") == keys, "a hub that takes its place has the same"


async def test_an_attempt_that_failed_halfway_can_be_made_again(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    (hub / "devices").write_text("in the way")
    with pytest.raises(ConfigError, match="devices"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    (hub / "devices").unlink()
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    with pytest.raises(RegistryError, match="exists already"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings())


async def test_a_leaf_url_that_is_none_is_refused_and_adds_nothing(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout(leaf_url="http://hub.example.org"))
    with pytest.raises(ConfigError, match="is no leaf address"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    assert not (hub / "devices" / "VID-001").exists()
    path = hub / "hub.toml"
    path.write_text(path.read_text().replace("http://hub", "nats-leaf://hub"))
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings())


async def test_a_device_id_that_is_none_is_refused(tmp_path: Path) -> None:
    create_hub(tmp_path, layout())
    with pytest.raises(RegistryError, match="is no device id"):
        await create_device(tmp_path, load(tmp_path), FixedClock(), "up.>", settings())


async def exports_of(hub: Path) -> list[str]:
    """Return what account FLEET offers."""
    async with await Registry.open(hub / "hub.db") as registry:
        jwts = await AccountKeeper(read_keys(hub), registry, FixedClock()).build()
    return [each["subject"] for each in body_of(jwts["FLEET"])["nats"]["exports"]]


async def test_nodes_with_lanes_of_their_own_are_in_the_login_and_offered_to_the_hub(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    before = await exports_of(hub)
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings("motor rear"))
    await create_device(hub, load(hub), FixedClock(), "VID-002", settings())
    mine = identity_of(hub)
    assert mine.nodes == ("motor rear",)
    assert tags_of(mine) == [f"tok:{mine.token}", "lane:n_motor%20rear"]
    assert len(tags_of(identity_of(hub, "VID-002"))) == 1
    bulk = [subject for subject in before if "OUT_bulk" in subject]
    assert len(bulk) == 3
    own = [subject.replace("OUT_bulk", "OUT_n_motor%20rear") for subject in bulk]
    assert sorted(await exports_of(hub)) == sorted(before + own)


async def test_a_device_whose_nodes_change_keeps_key_and_token(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    before = identity_of(hub)
    changed = await change_nodes(hub, FixedClock(), "VID-001", ["gps", "battery"])
    assert changed.device == replace(added.device, nodes=("battery", "gps"))
    identity = identity_of(hub)
    assert identity == msgspec.structs.replace(before, nodes=identity.nodes, jwt=identity.jwt)
    assert tags_of(identity)[1:] == ["lane:n_battery", "lane:n_gps"]
    assert body_of(identity.jwt)["sub"] == body_of(before.jwt)["sub"]

    await change_nodes(hub, FixedClock(), "VID-001", [])
    assert identity_of(hub).nodes == ()
    assert tags_of(identity_of(hub)) == tags_of(identity), "what was is read on"


async def test_the_lane_of_a_node_that_leaves_is_kept_until_nothing_of_it_is_missing(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings("gps", "door"))
    changed = await change_nodes(hub, FixedClock(), "VID-001", ["door"])
    assert (changed.device.nodes, changed.device.leaving) == (("door",), ("gps",))
    assert changed.dropped == ()
    assert lanes_of(changed.device)[2:] == ["n_door", "n_gps"]
    key = LaneKey("VID-001", "n_gps", 7)
    async with await Registry.open(hub / "hub.db") as registry:
        owing = LaneState(held=RangeSet([(1, 2)]), seen=RangeSet([(1, 2)]), said=3)
        await store_read(registry, "UP_00", ReadPosition(), {key: owing})
    assert (await change_nodes(hub, FixedClock(), "VID-001", ["door"])).device.leaving == ("gps",)
    async with await Registry.open(hub / "hub.db") as registry:
        whole = LaneState(held=RangeSet([(1, 3)]), seen=RangeSet([(1, 3)]), said=3)
        await store_read(registry, "UP_00", ReadPosition(), {key: whole})
    changed = await change_nodes(hub, FixedClock(), "VID-001", ["door"])
    assert (changed.device.leaving, changed.dropped) == ((), ("gps",))
    assert tags_of(identity_of(hub))[1:] == ["lane:n_door"]
    assert not any("n_gps" in subject for subject in await exports_of(hub))


async def test_nothing_is_changed_where_the_document_is_gone_or_damaged(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    added.identity.write_text("{")
    with pytest.raises(ConfigError, match=r"identity\.json.*not JSON"):
        await change_nodes(hub, FixedClock(), "VID-001", ["gps"])
    added.identity.unlink()
    with pytest.raises(ConfigError, match=r"identity\.json"):
        await change_nodes(hub, FixedClock(), "VID-001", ["gps"])
    async with await Registry.open(hub / "hub.db") as registry:
        assert (await read_devices(registry))["VID-001"] == added.device


async def test_no_nodes_for_a_device_that_is_not_there(tmp_path: Path) -> None:
    create_hub(tmp_path, layout())
    with pytest.raises(RegistryError, match="there is no device VID-001"):
        await change_nodes(tmp_path, FixedClock(), "VID-001", ["gps"])


def test_what_is_said_to_init_stands_in_the_files_whatever_it_is(tmp_path: Path) -> None:
    url = 'nats-leaf://h"\\:7422'
    create_hub(tmp_path / "hub", layout(url))
    assert load(tmp_path / "hub").fleet.leaf_url == url


@pytest.mark.parametrize("servers", [(), ("a", "b", "c")], ids=["one server", "a cluster"])
def test_a_server_finds_the_stores_of_its_accounts(
    tmp_path: Path, servers: tuple[str, ...]
) -> None:
    """It would make and remove them itself, with the streams that are made in between."""
    places = tuple(
        ServerPlace(name, "127.0.0.1", 4222 + number, 7422 + number, 6222 + number)
        for number, name in enumerate(servers)
    )
    hub = tmp_path / "hub"
    create_hub(hub, replace(layout(), servers=places))
    keys = read_keys(hub)
    for conf in hub.rglob("hub.conf"):
        for account in ("HUB", "UP"):
            place = f"jetstream/jetstream/{keys.account(account).public}/streams"
            assert list((conf.parent / place).iterdir()) == []
    assert len(list(hub.rglob("streams"))) == 2 * max(1, len(servers))
