"""`backhaul-hub notify dry-run` without a control plane: the notices to come, and what a route gets wrong."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_hub.alerts import rows
from backhaul_hub.alerts.plan import ToldSoFar
from backhaul_hub.alerts.silences import AlertSilence
from backhaul_hub.cli.main import cli
from backhaul_hub.db.store import Registry
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.alerting import HOT, S, alert
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.db.change import RowChange

ROUTES = """
[alerts.channels.pager]
kind = "webhook"
url = "https://pager.example.org/in"
[alerts.channels.ops]
kind = "webhook"
url = "https://ops.example.org/in"
[[alerts.routes]]
channels = ["pager"]
groups = ["fleet", "plant-8"]
repeat_s = 0
recovery = false
[[alerts.routes]]
channels = ["ops"]
severity = "critical"
hold_s = 0
"""
DRY = ["notify", "dry-run"]


async def write(hub: Path, changes: list[RowChange]) -> None:
    async with await Registry.open(hub / "hub.db") as registry:
        await registry.write(changes)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    create_hub(directory, local_layout(4222, 7422))
    with (directory / "hub.toml").open("a") as file:
        file.write(ROUTES)
    asyncio.run(write(directory, []))
    return directory


def run(hub: Path, *words: str) -> Any:
    result = CliRunner().invoke(cli, [*words, "--dir", str(hub)])
    assert result.exit_code == 0, result.output
    return result


def test_the_notices_to_come_are_shown_for_each_channel(hub: Path) -> None:
    now_ns = SystemClock().now_ns()
    hot = alert(heard_ns=now_ns, text="61 °C")
    cold = alert(HOT._replace(name="too-cold"), heard_ns=now_ns)
    mine = alert(HOT._replace(device="VID-002"), acked_ns=now_ns, acked_by="anna")
    silence = AlertSilence(1, "VID-001", "too-cold", 0, now_ns + 3 * 86_400 * S, "anna", "")
    changes = rows.alert_changes([hot, cold, mine]) + rows.silence_changes([silence])
    told = rows.told_changes({hot.id: {"ops": ToldSoFar(2, now_ns)}})
    asyncio.run(write(hub, changes + told))
    result = run(hub, *DRY)
    assert "no group or device plant-8" in result.stderr
    said = result.stdout
    assert re.search(
        r"VID-001 too-hot: 61 °C\n    pager: is told in (1 min|5\d s)\n    ops: was told 2 times, again in 4 h,",
        said,
    )
    assert "nobody for 3 d: it is silenced; then pager, ops\n" in said
    assert "nobody until it is over: anna takes care of it\n" in said
    [one] = [
        each
        for each in json.loads(run(hub, *DRY, "--json").stdout)
        if each["alert"]["id"] == mine.id
    ]
    assert set(one["channels"]) == {"pager", "ops"}


def test_an_alert_that_is_not_there_may_be_asked_for(hub: Path) -> None:
    said = run(hub, *DRY, "--severity", "warning", "--name", "stream-full").stdout
    assert said.startswith("warning (hub) stream-full: ")
    assert "ops" not in said
    assert (
        "    ops: is told now, again every 4 h, and when it is over"
        in run(hub, *DRY, "--device", "VID-001").stdout
    )
    assert "nobody: no route fits" in run(hub, *DRY, "--severity", "info").stdout
    assert "no alert is open" in run(hub, *DRY).stderr


def test_a_test_names_the_channels_that_there_are(hub: Path) -> None:
    result = CliRunner().invoke(cli, ["notify", "test", "fax", "--dir", str(hub)])
    assert "no channel 'fax'" in str(result.exception)
    assert "ops, pager" in str(result.exception)
