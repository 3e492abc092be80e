"""What a device is given fits what the hub lets it do."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError, RegistryError
from backhaul_hub.setup import DeviceSettings, HubLayout, create_device, create_hub

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


def settings(tmp_path: Path) -> DeviceSettings:
    return DeviceSettings(client_port=4300, state_dir=tmp_path / "state", link_kbit_s=20.0)


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
