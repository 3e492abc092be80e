"""What a device is given fits what the hub lets it do."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import pytest

from backhaul_codec.identity import Identity, Link, decode_identity
from backhaul_codec.ranges import RangeSet
from backhaul_hub.config import load
from backhaul_hub.continuity import LaneKey, LaneState
from backhaul_hub.enrol import DeviceSettings, change_nodes, create_device
from backhaul_hub.errors import ConfigError, RegistryError
from backhaul_hub.lanes import lanes_of
from backhaul_hub.registry import Position, Registry
from backhaul_hub.setup import HubLayout, create_hub

if TYPE_CHECKING:
    from pathlib import Path


# What names the device, or nobody, and needs no token.
OF_ONE = ("_R_.*.*", "_INBOX_VID-001.>", "clk.VID-001", "blob.VID-001")


class FixedClock:
    def now_ns(self) -> int:
        return 1_700_000_000 * 10**9

    def monotonic_s(self) -> float:
        return 0.0


def layout(leaf_url: str = "nats-leaf://hub.example.org:7422") -> HubLayout:
    return HubLayout("127.0.0.1", "127.0.0.1", 4222, 7422, leaf_url, 1, 5.0)


def settings(*nodes: str) -> DeviceSettings:
    return DeviceSettings(link_kbit_s=20.0, link_mode="scheduled", nodes=nodes)


def identity_of(hub: Path, device: str = "VID-001") -> Identity:
    return decode_identity((hub / "devices" / device / "identity.json").read_bytes())


async def test_a_devices_document_is_its_own(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    for device in ("VID-001", "VID-002"):
        await create_device(hub, load(hub), FixedClock(), device, settings())
    made = hub / "devices" / "VID-001"
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o600}
    identity = identity_of(hub)
    token = identity.token
    assert len(token) == 24
    assert (identity.device, identity.down_stream) == ("VID-001", "DOWN_00")
    assert identity.link == Link("scheduled", 20.0)
    assert identity_of(hub, "VID-002").token != token

    users = (hub / "devices.conf").read_text()
    mine = users[users.index("VID-001") : users.index("VID-002")]
    assert f"dlv.VID-001.{token}_bulk" in mine
    assert f"$JS.VID-001.API.CONSUMER.RESET.OUT_live.{token}" in mine
    # No wildcard stands where another device's name or token would fit.
    subjects = [
        line.strip().strip('"') for line in mine.splitlines() if line.startswith("        ")
    ]
    assert len(subjects) == 19
    for subject in subjects:
        assert token in subject or subject in OF_ONE, subject

    assert (hub / "hub.db").stat().st_mode & 0o777 == 0o600
    assert hub.stat().st_mode & 0o777 == 0o700
    url = urlsplit(identity.leaf_urls[0])
    assert (url.scheme, url.hostname, url.port) == ("nats-leaf", "hub.example.org", 7422)
    password = url.password or ""
    assert len(password) == 32
    assert password not in users, "the hub keeps a hash"


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
    assert (hub / "devices.conf").read_text().count('user: "VID-001"') == 1


async def test_a_leaf_url_that_is_none_is_refused_and_adds_nothing(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout(leaf_url="http://hub.example.org"))
    with pytest.raises(ConfigError, match="is no leaf address"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    assert "VID-001" not in (hub / "devices.conf").read_text()
    path = hub / "hub.toml"
    path.write_text(path.read_text().replace("http://hub", "nats-leaf://hub"))
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings())


async def test_a_device_id_that_is_none_is_refused(tmp_path: Path) -> None:
    create_hub(tmp_path, layout())
    with pytest.raises(RegistryError, match="is no device id"):
        await create_device(tmp_path, load(tmp_path), FixedClock(), "up.>", settings())


def users_of(hub: Path) -> dict[str, list[str]]:
    """Each user's subjects in devices.conf."""
    found: dict[str, list[str]] = {}
    subjects: list[str] = []
    for line in (hub / "devices.conf").read_text().splitlines():
        if "{ user:" in line:
            subjects = found[line.split('"')[1]] = []
        elif line.startswith("        "):
            subjects.append(line.strip().strip('"'))
    return found


async def test_a_nodes_lane_has_the_rights_of_a_shared_one_and_each_of_its_own(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings("motor rear"))
    await create_device(hub, load(hub), FixedClock(), "VID-002", settings())
    token = added.device.token
    mine, others = users_of(hub)["VID-001"], users_of(hub)["VID-002"]
    assert len(others) == 19
    up = {line for line in mine if "OUT_bulk" in line or "_bulk" in line}
    assert up
    for line in up:
        assert line.replace("OUT_bulk", "OUT_n_motor%20rear").replace(
            "_bulk", "_n_motor%20rear"
        ) in set(mine)
    down = {line for line in mine if "DOWN_00" in line or line.startswith("dn.")}
    shared = {line for line in down if f"{token}_n_" not in line}
    own = {line.replace(token, f"{token}_n_motor%20rear") for line in shared}
    assert down == shared | own
    for subject in mine:
        assert token in subject or subject in OF_ONE, subject

    for name in ("fleet-exports.conf", "hub-imports.conf"):
        text = (hub / name).read_text()
        assert "OUT_n_motor%20rear" in text
        assert text.count("CONSUMER.RESET") == 3
    assert identity_of(hub).nodes == ("motor rear",)


async def test_a_device_whose_nodes_change_keeps_password_and_token(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    before = identity_of(hub)
    changed = await change_nodes(hub, "VID-001", ["gps", "battery"])
    assert (changed.device.token, changed.device.password_hash) == (
        added.device.token,
        added.device.password_hash,
    )
    assert identity_of(hub) == msgspec.structs.replace(before, nodes=("battery", "gps"))

    await change_nodes(hub, "VID-001", [])
    assert identity_of(hub) == before
    assert len(users_of(hub)["VID-001"]) > 19, "what was is read on"


async def test_the_lane_of_a_node_that_leaves_is_kept_until_nothing_of_it_is_missing(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings("gps", "door"))
    changed = await change_nodes(hub, "VID-001", ["door"])
    assert (changed.device.nodes, changed.device.leaving) == (("door",), ("gps",))
    assert changed.dropped == ()
    assert lanes_of(changed.device)[2:] == ["n_door", "n_gps"]
    key = LaneKey("VID-001", "n_gps", 7)
    async with await Registry.open(hub / "hub.db") as registry:
        owing = LaneState(held=RangeSet([(1, 2)]), seen=RangeSet([(1, 2)]), said=3)
        await registry.store("UP_00", Position(), {key: owing})
    assert (await change_nodes(hub, "VID-001", ["door"])).device.leaving == ("gps",)
    async with await Registry.open(hub / "hub.db") as registry:
        whole = LaneState(held=RangeSet([(1, 3)]), seen=RangeSet([(1, 3)]), said=3)
        await registry.store("UP_00", Position(), {key: whole})
    changed = await change_nodes(hub, "VID-001", ["door"])
    assert (changed.device.leaving, changed.dropped) == ((), ("gps",))
    assert "n_gps" not in (hub / "devices.conf").read_text()
    assert "n_gps" not in (hub / "hub-imports.conf").read_text()


async def test_nodes_need_a_hub_conf_that_takes_them(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    conf = (hub / "hub.conf").read_text()
    older = conf.replace('include "fleet-exports.conf"', "exports: []")
    (hub / "hub.conf").write_text(older)
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    with pytest.raises(ConfigError, match=r'include "fleet-exports\.conf"'):
        await change_nodes(hub, "VID-001", ["gps"])
    with pytest.raises(ConfigError, match=r'include "fleet-exports\.conf"'):
        await create_device(hub, load(hub), FixedClock(), "VID-002", settings("gps"))
    assert not (hub / "devices" / "VID-002").exists()
    (hub / "hub.conf").write_text(conf)
    await change_nodes(hub, "VID-001", ["gps"])


async def test_nothing_is_changed_where_the_document_is_gone_or_damaged(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings())
    added.identity.write_text("{")
    with pytest.raises(ConfigError, match=r"identity\.json.*not JSON"):
        await change_nodes(hub, "VID-001", ["gps"])
    added.identity.unlink()
    with pytest.raises(ConfigError, match=r"identity\.json"):
        await change_nodes(hub, "VID-001", ["gps"])
    assert len(users_of(hub)["VID-001"]) == 19


async def test_no_nodes_for_a_device_that_is_not_there(tmp_path: Path) -> None:
    create_hub(tmp_path, layout())
    with pytest.raises(RegistryError, match="there is no device VID-001"):
        await change_nodes(tmp_path, "VID-001", ["gps"])
