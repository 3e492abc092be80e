"""`check-config` names what a hub.conf from an earlier `init` lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_hub.cli.main import cli
from backhaul_hub.setup.hub_directory import create_hub
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from pathlib import Path

PINGS = 'ping_interval: "29s"'


def said(tmp_path: Path, old: str, new: str) -> str:
    hub = tmp_path / "hub"
    create_hub(hub, local_layout(4222, 7422))
    conf = hub / "hub.conf"
    assert old in conf.read_text()
    conf.write_text(conf.read_text().replace(old, new))
    result = CliRunner().invoke(cli, ["check-config", "--dir", str(hub)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("now", [PINGS, 'ping_interval: "30s"', "ping_interval = 29s"])
def test_a_file_as_init_writes_it_is_good(tmp_path: Path, now: str) -> None:
    assert "hub.conf" not in said(tmp_path, PINGS, now)


@pytest.mark.parametrize(
    ("now", "how"),
    [
        ('ping_interval: "16s"', "is 16s"),
        ('# ping_interval: "29s"', "is not set"),
        ("", "is not"),
    ],
)
def test_a_server_that_asks_idle_vehicles_itself_is_named(
    tmp_path: Path, now: str, how: str
) -> None:
    output = said(tmp_path, PINGS, now)
    assert f"hub.conf: ping_interval {how}" in output
    assert PINGS in output


def test_a_log_without_bounds_is_named(tmp_path: Path) -> None:
    assert "hub.conf: log_file is not set" in said(tmp_path, "log_file:", "# log_file:")
