"""`backhaul-hub simulate` against a real server: what it writes, and where it will not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import ConfigError
from backhaul_hub.setup.hub_directory import HubLayout, create_hub
from backhaul_runtime.clock import SystemClock
from tests.hub.simulate_line import invoke, made
from tests.support.hub_acts import create_device
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


async def test_no_other_hub_takes_a_simulated_fleet(tmp_path: Path) -> None:
    real = tmp_path / "real"
    create_hub(real, HubLayout("127.0.0.1", "127.0.0.1", free_port(), free_port(), "x", 1, 5.0))
    result = invoke("--dir", str(real))
    assert isinstance(result.exception, ConfigError)
    assert "no test hub" in str(result.exception)


async def test_a_hub_that_is_there_is_not_made_a_test_hub(tmp_path: Path) -> None:
    real = tmp_path / "real"
    create_hub(real, HubLayout("127.0.0.1", "127.0.0.1", free_port(), free_port(), "x", 1, 5.0))
    result = invoke("--make-hub", str(real))
    assert isinstance(result.exception, ConfigError)
    assert not (real / "creds" / "simulator.creds").exists()


async def test_a_test_hub_with_devices_takes_no_simulated_fleet_any_more(tmp_path: Path) -> None:
    hub = await asyncio.to_thread(made, tmp_path / "hub")
    await create_device(hub, load(hub), SystemClock(), "VID-001", DeviceSettings())
    result = invoke("--dir", str(hub))
    assert isinstance(result.exception, ConfigError)
    assert "knows devices" in str(result.exception)


def test_no_control_plane_runs_on_a_test_hub(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["up", "--dir", str(made(tmp_path / "hub"))])
    assert isinstance(result.exception, ConfigError)
    assert "test hub" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rate", "6"), "no rate"),
        (("--rate", "0/s"), "no rate"),
        (("--backlog", "50"), "no backlog"),
        (("--backlog", "101x1d"), "no backlog"),
        (("--faults", "rust:1"), "no fault"),
        (("--faults", "stuck:101"), "101 faults"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    result = invoke("--dir", str(made(tmp_path / "hub")), "--devices", "100", *arguments)
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)
