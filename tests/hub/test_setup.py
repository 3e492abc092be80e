"""What a device is given fits what the hub lets it do."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from backhaul_codec.ranges import RangeSet
from backhaul_hub.agent_toml import DeviceSettings
from backhaul_hub.config import load
from backhaul_hub.continuity import LaneKey, LaneState
from backhaul_hub.enrol import change_nodes, create_device
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


def settings(tmp_path: Path, *nodes: str) -> DeviceSettings:
    return DeviceSettings(
        client_port=4300, state_dir=tmp_path / "state", link_kbit_s=20.0, nodes=nodes
    )


async def test_a_devices_files_are_its_own(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    for device in ("VID-001", "VID-002"):
        await create_device(hub, load(hub), FixedClock(), device, settings(tmp_path))
    made = hub / "devices" / "VID-001"
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o600}
    agent = tomllib.loads((made / "agent.toml").read_text())
    token = agent["device"]["token"]
    assert len(token) == 24
    assert agent["link"]["rate_kbit_s"] == 20.0
    other = tomllib.loads((hub / "devices" / "VID-002" / "agent.toml").read_text())
    assert other["device"]["token"] != token

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
    leaf = (made / "leaf.conf").read_text()
    password = leaf.split("nats-leaf://VID-001:")[1].split("@")[0]
    assert len(password) == 32
    assert password not in users, "the hub keeps a hash"
    assert "@hub.example.org:7422" in leaf


async def test_an_attempt_that_failed_halfway_can_be_made_again(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    (hub / "devices").write_text("in the way")
    with pytest.raises(ConfigError, match="devices"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    (hub / "devices").unlink()
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    with pytest.raises(RegistryError, match="exists already"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    assert (hub / "devices.conf").read_text().count('user: "VID-001"') == 1


async def test_a_leaf_url_that_is_none_is_refused_and_adds_nothing(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout(leaf_url="http://hub.example.org"))
    with pytest.raises(ConfigError, match="is no leaf address"):
        await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    assert "VID-001" not in (hub / "devices.conf").read_text()
    path = hub / "hub.toml"
    path.write_text(path.read_text().replace("http://hub", "nats-leaf://hub"))
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))


async def test_a_device_id_that_is_none_is_refused(tmp_path: Path) -> None:
    create_hub(tmp_path, layout())
    with pytest.raises(RegistryError, match="is no device id"):
        await create_device(tmp_path, load(tmp_path), FixedClock(), "up.>", settings(tmp_path))


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
    added = await create_device(
        hub, load(hub), FixedClock(), "VID-001", settings(tmp_path, "motor rear")
    )
    await create_device(hub, load(hub), FixedClock(), "VID-002", settings(tmp_path))
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
    agent = tomllib.loads(added.agent_toml.read_text())
    assert agent["streams"] == {"per": "node", "nodes": ["motor rear"]}
    assert '"n.>"' in added.leaf_conf.read_text()


async def test_a_device_whose_nodes_change_keeps_password_token_and_what_was_edited(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    text = added.agent_toml.read_text() + "\n[streams]\n# Small.\nout_live_bytes_max = 1000000\n"
    added.agent_toml.write_text(text + "\n[frame]\npoints_max = 10\n")
    older = added.leaf_conf.read_text().replace('"n.>", ', "")
    added.leaf_conf.write_text(older)

    changed = await change_nodes(hub, "VID-001", ["gps", "battery"])
    assert (changed.device.token, changed.device.password_hash) == (
        added.device.token,
        added.device.password_hash,
    )
    agent = tomllib.loads(added.agent_toml.read_text())
    assert agent["streams"] == {
        "per": "node",
        "nodes": ["battery", "gps"],
        "out_live_bytes_max": 1000000,
    }
    assert agent["frame"] == {"points_max": 10}
    assert "# Small." in added.agent_toml.read_text()
    assert changed.leaf_conf == added.leaf_conf
    assert added.leaf_conf.read_text().replace('"n.>", ', "") == older
    assert (await change_nodes(hub, "VID-001", ["gps", "battery"])).leaf_conf is None

    await change_nodes(hub, "VID-001", [])
    agent = tomllib.loads(added.agent_toml.read_text())
    assert agent["streams"] == {"per": "device", "nodes": [], "out_live_bytes_max": 1000000}
    assert len(users_of(hub)["VID-001"]) > 19, "what was is read on"


async def test_the_lane_of_a_node_that_leaves_is_kept_until_nothing_of_it_is_missing(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path, "gps", "door"))
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
    await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    with pytest.raises(ConfigError, match=r'include "fleet-exports\.conf"'):
        await change_nodes(hub, "VID-001", ["gps"])
    with pytest.raises(ConfigError, match=r'include "fleet-exports\.conf"'):
        await create_device(hub, load(hub), FixedClock(), "VID-002", settings(tmp_path, "gps"))
    assert not (hub / "devices" / "VID-002").exists()
    (hub / "hub.conf").write_text(conf)
    await change_nodes(hub, "VID-001", ["gps"])


@pytest.mark.parametrize("streams", ["[streams] # mine", "[streams]\nnodes = [\n  'a',\n]"])
async def test_an_agent_toml_that_cannot_be_changed_is_left_and_nothing_is_done(
    tmp_path: Path, streams: str
) -> None:
    hub = tmp_path / "hub"
    create_hub(hub, layout())
    added = await create_device(hub, load(hub), FixedClock(), "VID-001", settings(tmp_path))
    edited = f"{added.agent_toml.read_text()}\n{streams}\n"
    added.agent_toml.write_text(edited)
    with pytest.raises(ConfigError, match="write them there by hand"):
        await change_nodes(hub, "VID-001", ["gps"])
    assert added.agent_toml.read_text() == edited
    assert len(users_of(hub)["VID-001"]) == 19
    written = edited.replace(streams, '[streams] # mine\nper = "node"\nnodes = [\n  "gps",\n]')
    added.agent_toml.write_text(written)
    await change_nodes(hub, "VID-001", ["gps"])
    assert added.agent_toml.read_text() == written


async def test_no_nodes_for_a_device_that_is_not_there(tmp_path: Path) -> None:
    create_hub(tmp_path, layout())
    with pytest.raises(RegistryError, match="there is no device VID-001"):
        await change_nodes(tmp_path, "VID-001", ["gps"])
